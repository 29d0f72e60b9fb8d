"""Which partitions this broker holds and leads: `ReplicaManager` turns metadata into calls to the data plane."""
