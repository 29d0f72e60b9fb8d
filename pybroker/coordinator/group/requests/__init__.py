"""The effects of requests on groups: one file per request, `rebalance` and `removal` for what several share. Pure."""
