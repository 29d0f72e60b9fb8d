"""Apache Kafka's jars, fetched by name with Maven from Maven Central and kept outside any checkout, and
its main classes.

Blocks. Can fail: `KafkaMissing` when java or mvn is not there; `ProcessFailed` when one of them ends badly.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pybroker.cluster.errors import KafkaMissing, ProcessFailed
from pybroker.protocol.kafka_version import KAFKA_VERSION

SCALA_VERSION = "2.13"

#: Group, name and version at Maven Central.
Artifact = tuple[str, str, str]


JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


@dataclass(frozen=True, slots=True)
class Jvm:
    """How a JVM is started: the most that its heap takes, in MiB, and further options. The defaults start soon and take
    little; what is to be measured wants others."""

    heap_megabytes: int = 256
    options: Sequence[str] = JAVA_OPTIONS


_LOG4J_1 = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KafkaMissing(f"{name} was not found: Apache Kafka needs it (Debian: apt-get install {package})")
    return path


# The parts of Kafka's own distribution that a broker and its tools need. The tools jar pulls in Connect's runtime; its
# REST stack is a hundred jars nobody starts here, but leaving it out would mean a list of exclusions to maintain.
def _artifacts(version: str) -> tuple[Artifact, ...]:
    log4j = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
    kafka = (
        ("org.apache.kafka", f"kafka_{SCALA_VERSION}", version),
        ("org.apache.kafka", "kafka-tools", version),
    )
    return kafka if _has_log4j_1(version) else (*kafka, log4j)


def _has_log4j_1(version: str) -> bool:
    """Until 4.0 Kafka brought log4j 1, which wants a configuration of its own."""
    return version.startswith(("2.", "3."))


def cache_root() -> Path:
    """Where jars are kept: `$PYBROKER_CACHE` or `~/.cache/pybroker`."""
    return Path(os.environ.get("PYBROKER_CACHE") or Path.home() / ".cache" / "pybroker")


def cache_dir(version: str = KAFKA_VERSION) -> Path:
    """The dir of this Kafka version in it."""
    return cache_root() / f"kafka-{version}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>pybroker</groupId><artifactId>libs</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def fetch_jars(directory: Path, artifacts: Sequence[Artifact], *, transitive: bool = True) -> Path:
    """`directory`/libs with these artifacts, and with what they depend on if `transitive`, filled first if need be (one
    fetch at a time; a half-made dir is never seen)."""
    libs, complete = directory / "libs", directory / "libs.complete"
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / "fetch.lock"):
        if complete.exists():
            return libs
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            pom = Path(scratch) / "pom.xml"
            pom.write_text(_pom(artifacts))
            command = [_program("mvn", "maven"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={scratch}/libs"]
            command += [] if transitive else ["-DexcludeTransitive=true"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                names = ", ".join(f"{name} {version}" for _group, name, version in artifacts)
                raise ProcessFailed(f"mvn could not fetch {names}:\n{done.stdout[-4000:]}")
            libs.mkdir(exist_ok=True)
            for jar in Path(scratch, "libs").iterdir():
                jar.replace(libs / jar.name)
        complete.touch()
    return libs


def fetch(version: str = KAFKA_VERSION) -> Path:
    """The dir with Kafka's jars, filled first if need be."""
    return fetch_jars(cache_dir(version), _artifacts(version))


def class_archive() -> Path:
    """Kafka's classes as a JVM with `JAVA_OPTIONS` has loaded them: where it is there (`tests.harness.class_archive`
    makes it), others start in half the time."""
    return cache_dir() / "classes.jsa"


def _from_archive(options: Sequence[str]) -> Sequence[str]:
    # A JVM that finds it to be of another version or other jars says so and goes on without it: not to be heard.
    archive = class_archive()
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off")
    return (*options, *shared) if tuple(options) == JAVA_OPTIONS and archive.exists() else options


def java_command(
    main_class: str, heap_megabytes: int, log_level: str, options: Sequence[str], version: str = KAFKA_VERSION
) -> list[str]:
    libs = fetch(version)
    log4j = cache_dir(version) / f"log4j2-{log_level.lower()}.properties"
    if not log4j.exists():
        scratch = log4j.with_suffix(f".{os.getpid()}")
        scratch.write_text((_LOG4J_1 if _has_log4j_1(version) else _LOG4J).format(level=log_level))
        scratch.replace(log4j)
    configured = (
        f"-Dlog4j.configuration=file:{log4j}" if _has_log4j_1(version) else f"-Dlog4j2.configurationFile={log4j}"
    )
    command = [_program("java", "openjdk-17-jre-headless"), f"-Xmx{heap_megabytes}m"]
    command += _from_archive(options) if version == KAFKA_VERSION else options
    return [*command, configured, "-cp", f"{libs}/*", main_class]


def tool_command(
    main_class: str, *arguments: str, heap_megabytes: int = 256, version: str = KAFKA_VERSION
) -> list[str]:
    """The command line that runs one of Kafka's main classes, for callers that drive the process themselves."""
    return [*java_command(main_class, heap_megabytes, "WARN", JAVA_OPTIONS, version), *arguments]


def run_tool(
    main_class: str,
    *arguments: str,
    stdin: bytes | None = None,
    timeout_seconds: float = 240.0,
    check: bool = True,
    version: str = KAFKA_VERSION,
) -> subprocess.CompletedProcess[bytes]:
    """Run one of Kafka's main classes to its end; with `check`, a nonzero status raises `ProcessFailed`."""
    command = tool_command(main_class, *arguments, version=version)
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_seconds, check=False)
    if check and done.returncode != 0:
        output = (done.stdout + done.stderr).decode(errors="replace")[-4000:]
        raise ProcessFailed(f"{main_class} {' '.join(arguments)} ended with status {done.returncode}:\n{output}")
    return done
