"""The broker as a service of systemd: what it tells the service manager, and how it is installed.

`notify` speaks the protocol, `supervision` and `watchdog` say by it how a broker is; `deployment`, `installation` and
`state` are behind `pybroker service`.
"""
