"""What a cluster must not do, and whether it did: `load` and `scenario` write a `history` while `faults` happen, and
`checker` and `replicas` judge it. Clusters come from `pybroker.cluster`."""
