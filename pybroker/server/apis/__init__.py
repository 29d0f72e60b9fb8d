"""One module per API; each exposes `API` as `pybroker.server.api` describes."""
