"""Command line of the generator.

- `python -m pybroker.protocol.generate schema --jars DIR`: rewrite schema/*.schema from Kafka's jars;
- `... check --jars DIR`: compare schema/*.schema with the jars; exit 1 and name what differs;
- `... fetch --jars DIR`: get those jars from Maven Central with mvn;
- `... stub [--check]`: rewrite (or compare) messages.pyi and error_codes.py;
- `... c --out DIR`: write the C codecs, the API table and the error codes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from pybroker.protocol.definitions import SCHEMA_DIR, SchemaError
from pybroker.protocol.kafka_version import KAFKA_VERSION

SLF4J = "org.slf4j:slf4j-api:1.7.36"


def _write_changed(path: Path, text: str) -> None:
    """Writes a file unless it already holds the text, so that its time only moves with its content."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _differing(directory: Path, texts: dict[str, str]) -> list[str]:
    names = []
    for name, text in texts.items():
        path = directory / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            names.append(str(path))
    return names


def _report(differing: list[str], remedy: str) -> int:
    for path in differing:
        print(f"{path} is out of date: {remedy}", file=sys.stderr)
    return 1 if differing else 0


def _schema_texts(jars: Path) -> dict[str, str]:
    from pybroker.protocol.generate import error_codes, from_jars

    texts = from_jars.read_jars(jars, KAFKA_VERSION)
    texts[error_codes.SCHEMA_FILE] = error_codes.read_from_jars(jars, KAFKA_VERSION)
    return texts


def _python_texts() -> dict[str, str]:
    from pybroker.protocol.generate import error_codes, stub

    return {"messages.pyi": stub.stub_source(), "error_codes.py": error_codes.python_source()}


def run_fetch(jars: Path) -> int:
    """Copies the jars into the directory `jars`; jars that are there are kept."""
    from pybroker.protocol.generate.from_jars import ARTIFACTS

    wanted = [f"org.apache.kafka:{artifact}:{KAFKA_VERSION}" for artifact in ARTIFACTS] + [SLF4J]
    for coordinates in wanted:
        _, artifact, version = coordinates.split(":")
        if not (jars / f"{artifact}-{version}.jar").is_file():
            subprocess.run(
                ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={jars}"],
                check=True,
            )
    return 0


def run_schema(jars: Path) -> int:
    for name, text in _schema_texts(jars).items():
        _write_changed(SCHEMA_DIR / name, text)
    return 0


def run_check(jars: Path) -> int:
    return _report(_differing(SCHEMA_DIR, _schema_texts(jars)), "run the schema command and read the diff")


def run_stub(check: bool) -> int:
    package = SCHEMA_DIR.parent
    texts = _python_texts()
    if check:
        return _report(_differing(package, texts), "run the stub command")
    for name, text in texts.items():
        _write_changed(package / name, text)
    return 0


def run_c(out: Path) -> int:
    from pybroker.protocol.generate import c_files

    out.mkdir(parents=True, exist_ok=True)
    for name, text in c_files.all_files().items():
        _write_changed(out / name, text)
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pybroker.protocol.generate", description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("schema", "check", "fetch"):
        commands.add_parser(name).add_argument("--jars", type=Path, required=True, help="directory with Kafka's jars")
    commands.add_parser("stub").add_argument("--check", action="store_true", help="compare, write nothing")
    commands.add_parser("c").add_argument("--out", type=Path, required=True, help="directory for the C files")
    options = parser.parse_args(arguments)
    try:
        if options.command == "stub":
            return run_stub(options.check)
        if options.command == "c":
            return run_c(options.out)
        return {"schema": run_schema, "check": run_check, "fetch": run_fetch}[options.command](options.jars)
    except (SchemaError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
