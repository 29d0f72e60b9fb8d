"""`pybroker serve`: run a broker until SIGTERM or SIGINT; SIGHUP reloads logging.

Exit status: 0 after a clean stop; 2 for a configuration that is not accepted. It is 1 when the broker cannot start or
go on, or when its stop may have cost acknowledged records. One line on standard output says that it serves; everything
else goes to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from pybroker.observability.logging import configure_logging, log_what_python_prints
from pybroker.observability.standard_streams import STANDARD_ERROR, was_closed

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.definition import ConfigError
    from pybroker.profiles import Profile
    from pybroker.server.daemon import Daemon

logger = logging.getLogger(__name__)

_EXIT_FAILED = 1
_EXIT_BAD_CONFIG = 2
_NS_PER_MS = 1_000_000
_NAMES_PER_LINE = 50
#: The younger generations are so small that a look takes milliseconds; a look at everything is as rare as can be.
_COLLECTOR_THRESHOLDS = (2_000, 5, 1_000)


@click.command(name="serve")
@click.argument("properties", required=False, type=click.Path())
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting that wins over the file's."
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json", "journal"]),
    help="Of the log on standard error; wins over pybroker.log.format.",
)
def command(properties: str | None, overrides: tuple[str, ...], log_format: str | None) -> None:
    """Run a broker with the settings of a server.properties file."""
    # Nearly all that a start makes stays: looking through it again and again is a tenth of its time.
    gc.disable()
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.definition import ConfigError
    from pybroker.observability.log_settings import apply_log_settings
    from pybroker.profiles import load_profile

    try:
        config = BrokerConfig.load(properties, overrides)
        apply_log_settings(config, log_format)
        log_what_python_prints()
        profile = load_profile(config)
    except ConfigError as error:
        for reason in _all_reasons(error, properties, overrides):
            _tell_why(reason)
        sys.exit(_EXIT_BAD_CONFIG)
    for warning in config.warnings:
        logger.warning("%s", warning)

    from pybroker.metadata.errors import MetadataError, MetadataLogError
    from pybroker.native import NativeError
    from pybroker.server.observe.turn_meter import metered_loop
    from pybroker.storage.errors import StorageError

    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=metered_loop) as runner:
            reload = partial(_reload_logging, config, properties, overrides, log_format)
            status = runner.run(_run(config, profile, reload))
        sys.exit(status)
    except ConfigError as error:
        # Dynamic values, which are in the metadata, may contradict those of the file.
        _tell_why(str(error))
        sys.exit(_EXIT_BAD_CONFIG)
    except (NativeError, StorageError, MetadataError, MetadataLogError) as error:
        _tell_why(str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        _tell_why(f"{place}{error.strerror or error}")
    sys.exit(_EXIT_FAILED)


def _tell_why(reason: str) -> None:
    """Why it does not serve, for whoever started it. With a closed standard error the log may reach somebody."""
    click.echo(f"pybroker: {reason}", err=True)
    if was_closed(STANDARD_ERROR):
        if not logging.getLogger().handlers:  # the configuration was not accepted, so it has not said where to
            configure_logging()
        logger.critical("the broker cannot start or go on: %s", reason)


def _all_reasons(first: ConfigError, properties: str | None, overrides: Sequence[str]) -> list[str]:
    """`first`, and the other errors of the configuration: whoever corrects a file wants to do it once."""
    from pybroker.config.check import Severity, check

    found = [each for each in check(properties, overrides) if each.severity is Severity.ERROR]
    return list(dict.fromkeys([str(first), *(each.as_reason() for each in found)]))


def _raise_file_limit() -> None:
    """Every connection and every active segment takes a descriptor, and the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(config: BrokerConfig, profile: Profile, reload_logging: Callable[[], None]) -> int:
    """Serve until a signal or a failure; the exit status."""
    from pybroker.server.daemon import Daemon
    from pybroker.service.notify import ServiceManager
    from pybroker.service.supervision import Supervision

    daemon = Daemon(config, profile)
    async with Supervision(ServiceManager(), daemon) as supervision:
        asked_to_stop = _on_signals(partial(supervision.reload, reload_logging))
        starting = asyncio.create_task(daemon.start())
        ends: list[asyncio.Future[int] | asyncio.Future[str]] = [asked_to_stop, daemon.failed]
        # A start that waits for the controllers may wait for ever once the broker cannot go on.
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _say_ready(daemon, profile)
            supervision.tell_ready()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        elif asked_to_stop.done():
            logger.info("asked to stop while starting")
    if daemon.failed.done():
        logger.error("the broker cannot go on: %s", daemon.failed.result())
    else:
        logger.info("%s: closing", signal.Signals(asked_to_stop.result()).name)
    started_ns = time.monotonic_ns()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    # Also of one that was still starting: it may have got through all the same.
    await daemon.stop()
    logger.info("closed in %d ms", (time.monotonic_ns() - started_ns) // _NS_PER_MS)
    _say_at_risk(daemon)
    # A signal that comes while it closes, or just before, does not make a clean stop of a failure.
    return _EXIT_FAILED if daemon.failed.done() or daemon.at_risk else 0


def _say_at_risk(daemon: Daemon) -> None:
    names = [f"{topic}-{partition}" for topic, partition in sorted(daemon.at_risk)]
    for start in range(0, len(names), _NAMES_PER_LINE):
        some = ", ".join(names[start : start + _NAMES_PER_LINE])
        logger.error(
            "records that were acknowledged last may be lost in %d of %d partitions that could not be written to the "
            "disk whole: %s. The next start tells what is missing",
            min(_NAMES_PER_LINE, len(names) - start),
            len(names),
            some,
        )


def _say_ready(daemon: Daemon, profile: Profile) -> None:
    from pybroker.observability import process
    from pybroker.server.daemon import ready_line

    if daemon.backend_reason is not None:
        logger.info("I/O backend %s: %s", daemon.native.backend, daemon.backend_reason)
    for note in profile.notes:
        logger.info("%s", note)
    _spare_the_collector()
    try:
        click.echo(ready_line(daemon, int(process.age_seconds() * 1000)))
    except OSError as error:
        logger.error("the ready line cannot be written: %s", error)
        _discard_output()


def _reload_logging(
    running: BrokerConfig, properties: str | None, overrides: Sequence[str], log_format: str | None
) -> None:
    from pybroker.config.definition import ConfigError
    from pybroker.observability.log_settings import reload_log_settings

    try:
        told, others = reload_log_settings(running, properties, overrides, log_format)
    except ConfigError as error:
        logger.error("SIGHUP: the log stays as it is: %s", error)
        return
    logger.info("SIGHUP: %s", told)
    if others:
        logger.warning("SIGHUP: changed in the file, and counted from the next start on: %s", ", ".join(others))


def _spare_the_collector() -> None:
    """Looking through all objects takes 50 ms with the offsets of 10,000 groups, and the loop stands still meanwhile.
    Objects that exist after the start stay for good, and the survivors of the rest are looked at rarely."""
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    gc.enable()


def _on_signals(reload: Callable[[], None]) -> asyncio.Future[int]:
    """Done with the first SIGTERM or SIGINT; a second one ends the process at once. SIGHUP reloads."""
    loop = asyncio.get_running_loop()
    asked_to_stop: asyncio.Future[int] = loop.create_future()

    def on_signal(number: int) -> None:
        if asked_to_stop.done():
            logger.error("second signal: ending at once, the next start has to check the logs")
            os._exit(128 + number)
        asked_to_stop.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    return asked_to_stop


def _discard_output() -> None:
    """Let what is buffered for standard output go nowhere: the interpreter tries again at its end, and failing there
    would make a clean stop look like a failure."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
