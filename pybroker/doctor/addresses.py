"""Listeners, and what clients are told of them: ports that are taken, addresses that lead nowhere or elsewhere."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator

from pybroker.client.cluster import Cluster
from pybroker.client.errors import ClientError
from pybroker.config.listeners import Listener, format_address, parse_address
from pybroker.doctor import processes
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import TIMEOUT_S, Subject

_METRICS_KEY = "pybroker.metrics.listener"
_EVERY_HOST = ("", "0.0.0.0", "::")


def _taken_ports(subject: Subject) -> Iterator[Finding]:
    """A port of `listeners` on which somebody else listens, or on which this broker may not."""
    for listener in subject.config.listeners:
        yield from _bindable(subject, listener)


def _bindable(subject: Subject, listener: Listener) -> Iterator[Finding]:
    if listener.port == 0 or _serves(subject.pid, listener.port):
        return
    place = f"listeners: {listener}"
    refusal = _refusal(listener.host, listener.port)
    if refusal == errno.EADDRINUSE:
        what = f"port {listener.port} is in use by {_owner(listener.port)}"
        why = "the broker cannot start: it needs the port for itself"
        remedy = "stop that process, or give listeners another port"
        yield Finding(Severity.ERROR, "port-in-use", place, what, why, remedy)
    elif refusal == errno.EADDRNOTAVAIL:
        what = f"{listener.host} is no address of this machine"
        why = "the broker cannot start: it can only listen on an address that is here"
        remedy = "listen on an address that `ip address` shows, or on all (an empty host), and put this one into "
        yield Finding(Severity.ERROR, "listener-address", place, what, why, remedy + "advertised.listeners")
    elif refusal in (errno.EACCES, errno.EPERM):
        what = f"this user may not listen on port {listener.port}"
        why = "the broker cannot start as this user: ports below 1024 need a right of their own"
        remedy = "take a port from 1024 on, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit"
        yield Finding(Severity.ERROR, "port-forbidden", place, what, why, remedy)
    elif refusal is not None:
        what = f"it cannot be listened on: {os.strerror(refusal)}"
        yield Finding(Severity.ERROR, "listener-address", place, what, "the broker cannot start", "change listeners")


def _metrics_port(subject: Subject) -> Iterator[Finding]:
    """The port of metrics, which is taken quietly when it is the default."""
    address = parse_address(subject.config.get_str(_METRICS_KEY))
    if address is None or address[1] == 0 or _serves(subject.pid, address[1]):
        return
    if subject.pid is None and _refusal(*address) != errno.EADDRINUSE:
        return
    is_set = subject.config.is_set(_METRICS_KEY)
    owner = _owner(address[1])
    if subject.pid is not None and not processes.listeners_on(address[1]):
        owner = "nobody now, and was by another process when this broker started"
    yield Finding(
        Severity.ERROR if is_set and subject.pid is None else Severity.WARNING,
        "metrics-port-in-use",
        f"{_METRICS_KEY}={format_address(*address)}",
        f"port {address[1]} is in use by {owner}",
        "the broker does not start" if is_set else "the broker serves without metrics, health and events",
        f"give {_METRICS_KEY} another port; port 0 turns them off",
    )


def _advertised(subject: Subject) -> Iterator[Finding]:
    """The addresses that clients are told: they get them with the first answer, and go there."""
    key = "advertised.listeners"
    for own, told in zip(subject.config.listeners, subject.config.advertised_listeners, strict=True):
        host = told.host or socket.getfqdn()
        place = f"{key}: {told}"
        why = "clients reach the broker once, are told this address, and then fail to connect to it"
        problem = _unresolved(host)
        if problem is not None:
            what = f"the name {host!r} cannot be resolved here: {problem}"
            remedy = f"set {key} to a name or address that clients can resolve and reach"
            yield Finding(Severity.ERROR, "advertised-unresolved", place, what, why, remedy)
        elif own.host in _EVERY_HOST and _is_loopback(host):
            what = f"clients are told {host}, which leads each of them to its own machine"
            remedy = f"set {key} to a name or address of this machine; for clients on this machine alone, listen on it"
            yield Finding(Severity.WARNING, "advertised-loopback", place, what, why, remedy)
        elif not _is_loopback(own.host or "0.0.0.0") and not _is_here(host):
            what = f"{host} is no address of this machine, unless something in between translates it"
            remedy = "nothing, where a proxy or container host forwards it; else set it to an address of this machine"
            yield Finding(Severity.NOTE, "advertised-elsewhere", place, what, why, remedy)
        elif _is_loopback(own.host) and not _is_loopback(host):
            what = f"the broker listens on {own.host} alone, and clients are told {host}"
            remedy = f"listen on {host} or on all addresses (an empty host in listeners)"
            yield Finding(Severity.ERROR, "advertised-not-listened", place, what, why, remedy)


def _reached(subject: Subject) -> Iterator[Finding]:
    """The addresses that the running broker tells clients, followed as a client does."""
    address = subject.address
    if address is None:
        return
    with Cluster([address], timeout_seconds=TIMEOUT_S) as cluster:
        answer = cluster.metadata()
    for broker in answer.brokers:
        told = (broker.host, broker.port)
        problem = _followed(told, answer.cluster_id, broker.node_id)
        if problem is not None:
            yield Finding(
                Severity.ERROR,
                "advertised-unreachable",
                f"advertised.listeners: {format_address(*told)}",
                f"broker {broker.node_id}, asked at {format_address(*address)}, sends clients to "
                f"{format_address(*told)}: {problem}",
                "clients reach the broker once, are told this address, and then fail to connect to it",
                "set advertised.listeners to an address at which clients reach this very broker",
            )


def _followed(told: tuple[str, int], cluster_id: str | None, node_id: int) -> str | None:
    """The fault that a client finds where it was sent."""
    try:
        with Cluster([told], timeout_seconds=TIMEOUT_S) as cluster:
            answer = cluster.metadata()
    except ClientError as error:
        return str(error)
    if answer.cluster_id != cluster_id:
        return f"a broker of another cluster, {answer.cluster_id}, answers there"
    return None if any(each.node_id == node_id for each in answer.brokers) else "another broker answers there"


def _serves(pid: int | None, port: int) -> bool:
    return pid is not None and any(each == port for _, each in processes.listening(pid))


def _owner(port: int) -> str:
    """In words, who listens on a port."""
    for host, pid in processes.listeners_on(port):
        if pid is not None:
            return f"process {pid} ({processes.command_of(pid)}), on {format_address(host, port)}"
        return "a process that this user may not see (as root, `ss -ltnp` names it)"
    return "a socket that does not listen (`ss -tanp` as root shows connections from that port)"


def _refusal(host: str, port: int) -> int | None:
    """The error of binding there as the broker does; None when it works."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno
    return None


def _unresolved(host: str) -> str | None:
    """Why a name leads to no address."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return None


def _addresses(host: str) -> list[str]:
    try:
        return [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def _is_loopback(host: str) -> bool:
    found = _addresses(host) if host else []
    return bool(found) and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


def _is_here(host: str) -> bool:
    """Whether one of the addresses is of this machine."""
    return any(_refusal(each, 0) is None for each in _addresses(host))


CHECKS = (_taken_ports, _metrics_port, _advertised, _reached)
