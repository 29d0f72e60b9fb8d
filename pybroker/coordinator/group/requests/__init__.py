"""What requests do to groups: one file per request, `rebalance` and `removal` for what several share. Pure."""
