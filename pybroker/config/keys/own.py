"""Configuration keys that only pybroker has. They all start with `pybroker.`."""

from __future__ import annotations

import re

from pybroker.config.definition import ConfigKey, ConfigType, ConfigValue, Importance, OneOf, Range, UpdateMode
from pybroker.config.listeners import MOST_PORT, parse_address
from pybroker.values import Value


class _Address(Value):
    """One host and port."""

    accepted: str = f"host:port with a port from 0 to {MOST_PORT}"

    def accepts(self, value: ConfigValue) -> bool:
        return isinstance(value, str) and parse_address(value) is not None


_LOG_LEVELS = "debug|info|warning|error"


class _LogLevels(Value):
    """A level for all loggers, and others for some."""

    accepted: str = "debug, info, warning or error, and after commas logger:level such as pybroker.storage:debug"

    def accepts(self, value: ConfigValue) -> bool:
        if not isinstance(value, tuple) or not value or not all(re.fullmatch(_LOGGER_LEVEL, item) for item in value):
            return False
        loggers = [item.rpartition(":")[0] for item in value]
        return len(set(loggers)) == len(loggers)


_LOGGER_LEVEL = rf"([a-z_]+(\.[a-z_0-9]+)*:)?({_LOG_LEVELS})"

DURABILITY_MODES = ("none", "interval", "acks")
DURABILITY_BY_FLUSH = "auto"
"""The durability that follows from the topic's flush settings."""

DURABILITY = ConfigKey(
    "pybroker.durability",
    ConfigType.STRING,
    # Not null: clients send all settings of a topic back, as they were described, when they change one.
    DURABILITY_BY_FLUSH,
    Importance.HIGH,
    "The promise of an acknowledgement: none and interval survive a crash of the process, acks also a loss of power. "
    "With auto, a flush.messages of 1 means acks, any other bound on flushing interval, and no bound none.",
    OneOf(DURABILITY_BY_FLUSH, *DURABILITY_MODES),
    UpdateMode.CLUSTER_WIDE,
    honoured=True,
)

OWN_KEYS: tuple[ConfigKey, ...] = (
    DURABILITY,
    ConfigKey(
        "pybroker.io.backend",
        ConfigType.STRING,
        "auto",
        Importance.MEDIUM,
        "How the broker talks to the kernel: io_uring, epoll, or auto, which takes io_uring where it is allowed.",
        OneOf("auto", "io_uring", "epoll"),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.reactors",
        ConfigType.INT,
        "0",
        Importance.MEDIUM,
        "How many threads serve connections; 0 takes the number from the hardware profile.",
        Range(0, 1024),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.profile",
        ConfigType.STRING,
        "auto",
        Importance.MEDIUM,
        "Name or file of the hardware profile; auto takes the one that matches this machine.",
        honoured=True,
    ),
    ConfigKey(
        "pybroker.metrics.listener",
        ConfigType.STRING,
        "127.0.0.1:9404",
        Importance.MEDIUM,
        "Where metrics, health and events are told over HTTP, without asking who wants to know: host:port, and port 0 "
        "for nowhere. When the default is taken, as by another broker on the machine, there are none.",
        _Address(),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.log.level",
        ConfigType.LIST,
        "info",
        Importance.LOW,
        "The least important lines of the log; some loggers may have a level of their own. SIGHUP reads it again.",
        _LogLevels(),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.log.format",
        ConfigType.STRING,
        "auto",
        Importance.LOW,
        "How the log is written to standard error; auto sends fields to systemd's journal when it is that, "
        "or when standard error is closed, else text. "
        "`--log-format` wins. SIGHUP reads it again.",
        OneOf("auto", "text", "json", "journal"),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.group.members.max.bytes",
        ConfigType.LONG,
        str(256 << 20),
        Importance.MEDIUM,
        "The memory that members of all groups may take: metadata, assignments, names. Beyond it a JoinGroup or "
        "SyncGroup gets GROUP_MAX_SIZE_REACHED; the last quarter is for those of up to 64 KiB.",
        Range(1 << 20),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.slow.request.ms",
        ConfigType.LONG,
        "1000",
        Importance.LOW,
        "A request that takes so long is named in the log and in `pybroker events`; 0 names none. The wait of "
        "a Fetch for data does not count, nor does a JoinGroup or SyncGroup.",
        Range(0, 86_400_000),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.append.engine",
        ConfigType.STRING,
        "auto",
        Importance.LOW,
        "How appended bytes reach the disk: `paced` goes through the page cache. Logs that are written to steadily go "
        "past it with `direct`, from rings in memory that outlives the process. The profile chooses with `auto`.",
        OneOf("auto", "paced", "direct"),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.log.dir.reserve.bytes",
        ConfigType.LONG,
        "-1",
        Importance.MEDIUM,
        "Producers are refused while less than this is free on a log dir's file system, until half as much more is "
        "free. The default -1 takes 1 % of the file system, at most 1 GiB; 0 keeps nothing.",
        Range(-1),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.tail.ring.directory",
        ConfigType.STRING,
        "/dev/shm",
        Importance.LOW,
        "With the append engine direct: a directory on tmpfs, in which the broker makes its own for the newest bytes "
        "of its logs. Nobody may clean it up while the broker is down: these bytes are acknowledged.",
        honoured=True,
    ),
    ConfigKey(
        "pybroker.tail.ring.budget.bytes",
        ConfigType.LONG,
        "268435456",
        Importance.LOW,
        "With the append engine direct: memory for the newest bytes of logs that are written to steadily, 32 MiB for "
        "each; the logs beyond that are paced.",
        Range(0),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.tail.ring.hot.bytes.per.second",
        ConfigType.LONG,
        "1048576",
        Importance.LOW,
        "With the append engine direct: a log that is written at this rate for a second gets a ring, if one is free. "
        "With durable acknowledgements 16 writes in a second are enough as well.",
        Range(0),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.spin.us",
        ConfigType.INT,
        "-1",
        Importance.LOW,
        "How long a reactor looks for work before it sleeps; 0 sleeps at once, -1 takes the time from the profile.",
        Range(-1, 10_000),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.scrub.bytes.per.second",
        ConfigType.LONG,
        "8388608",
        Importance.MEDIUM,
        "How fast the scrub reads sealed segments again, at idle I/O priority, to find damage before a client does; 0 "
        "turns it off. Right after a start it reads the active segments, eight times as fast.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
        honoured=True,
    ),
    ConfigKey(
        "pybroker.scrub.interval.ms",
        ConfigType.LONG,
        "604800000",
        Importance.LOW,
        "How long after the beginning of a pass of the scrub over all logs the next one begins, at the earliest.",
        Range(1),
        UpdateMode.CLUSTER_WIDE,
        honoured=True,
    ),
    ConfigKey(
        "pybroker.buffer.budget.bytes",
        ConfigType.LONG,
        "67108864",
        Importance.MEDIUM,
        "Memory for the buffers of all connections together. At the bound reading from sockets waits, and clients that "
        "hold it with requests they do not finish are disconnected, the slowest first.",
        Range(1 << 20),
        honoured=True,
    ),
    ConfigKey(
        "pybroker.history.cache.bytes",
        ConfigType.LONG,
        "0",
        Importance.LOW,
        "Bytes of history that stay in memory after consumers had them read from disk, for others that follow. With "
        "0 it is an eighth of the memory that the broker may use, and half of that memory is the most.",
        Range(0),
        honoured=True,
    ),
)
