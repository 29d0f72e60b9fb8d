"""All C files made from the schema table: codecs of the data plane's messages, the API table, the error codes."""

from __future__ import annotations

from pybroker.protocol.generate import error_codes


def all_files() -> dict[str, str]:
    """File name -> text."""
    return {"kafka_errors.h": error_codes.c_header()}
