"""APIs about the cluster, its brokers and its controllers."""
