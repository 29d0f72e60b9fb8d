"""Kafka's error codes: read from the jars into `schema/errors.schema`, written from there as Python and as C.

Which codes are retriable is a property of Java exception classes. So the reading runs a few lines of Java over the
jars; a JDK, and slf4j-api among the jars, are needed for that alone.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from pybroker.protocol.definitions import SCHEMA_DIR, SchemaError

SCHEMA_FILE = "errors.schema"
_JAVA = """
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class ErrorCodes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values())
            System.out.println(error.name() + " " + error.code()
                + (error.exception() instanceof RetriableException ? " retriable" : ""));
    }
}
"""


class ErrorFact(NamedTuple):
    """One error code of Kafka's."""

    name: str
    code: int
    retriable: bool


def read_from_jars(jars: Path, version: str) -> str:
    """Text of errors.schema. SchemaError when Java cannot run or the jars are incomplete."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "ErrorCodes.java")
        source.write_text(_JAVA, encoding="utf-8")
        command = ["java", "-cp", f"{jars}/*", str(source)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise SchemaError("java is not installed: a JDK of 17 or newer is needed to read the error codes") from None
        except subprocess.CalledProcessError as error:
            raise SchemaError(f"reading the error codes from {jars} failed: {error.stderr.strip()}") from None
    head = f"# Facts of Apache Kafka {version}; written by `python -m pybroker.protocol.generate schema`."
    return head + "\n\n" + run.stdout


def load() -> list[ErrorFact]:
    """The committed table, by code."""
    facts = []
    for line in (SCHEMA_DIR / SCHEMA_FILE).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, code, *rest = line.split()
            facts.append(ErrorFact(name, int(code), rest == ["retriable"]))
    return sorted(facts, key=lambda fact: fact.code)


def python_source() -> str:
    """Text of `pybroker/protocol/error_codes.py`."""
    facts = load()
    lines = [
        '"""Kafka\'s error codes. Written by `python -m pybroker.protocol.generate stub`; not edited by hand."""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ErrorCode(IntEnum):",
        '    """The int16 that a response carries; NONE is success."""',
        "",
        *(f"    {fact.name} = {fact.code}" for fact in facts),
        "",
        "",
        "RETRIABLE = frozenset(",
        "    {",
        *(f"        ErrorCode.{fact.name}," for fact in facts if fact.retriable),
        "    }",
        ")",
        '"""Codes on which Kafka\'s clients try again by themselves."""',
    ]
    return "\n".join(lines) + "\n"


def c_header() -> str:
    """Text of `kafka_errors.h`."""
    facts = load()
    lines = [
        "/* Kafka's error codes. Written by pybroker.protocol.generate; not edited by hand. */",
        "#ifndef PB_WIRE_GENERATED_KAFKA_ERRORS_H",
        "#define PB_WIRE_GENERATED_KAFKA_ERRORS_H",
        "",
        "/* The int16 that a response carries. A function that returns one returns int. */",
        "enum pb_error_code {",
        *(f"    PB_KAFKA_{fact.name} = {fact.code}," for fact in facts),
        "};",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"
