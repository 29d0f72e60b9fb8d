"""APIs about partitions: their leaders, replicas, log dirs and offsets."""
