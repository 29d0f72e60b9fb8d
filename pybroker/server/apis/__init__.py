"""One module per API, in a folder per subject; each exposes `API` as `pybroker.server.api` describes."""
