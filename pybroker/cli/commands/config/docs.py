"""`pybroker config docs`: what there is to configure."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pybroker.cli.common import fail
from pybroker.cli.name_options import complete_settings


@click.command(name="docs")
@click.argument("names", nargs=-1, metavar="[SETTING]...", shell_complete=complete_settings)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to this file.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(names: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Print the reference of all settings as Markdown, or what there is to say of each SETTING.

    Exit status: 0, or 1 for a SETTING that nobody knows, or an --output that cannot be written.
    """
    from pybroker.config.reference import as_markdown, as_rows

    try:
        rows = as_rows(names) if names or as_json else []
    except KeyError as error:
        _unknown(error.args[0])
    if as_json:
        text = json.dumps({"settings": rows}, indent=2) + "\n"
    elif names:
        text = "\n".join(_describe(row) for row in rows)
    else:
        text = as_markdown()
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{output}: {error.strerror}")


def _unknown(name: str) -> None:
    from pybroker.config.keys.retired import RETIRED_KEYS
    from pybroker.config.notices import similar_key

    if name in RETIRED_KEYS:
        retired = RETIRED_KEYS[name]
        instead = f"; instead: {', '.join(retired.replacements)}" if retired.replacements else ""
        fail(f"{name} is no setting any more (Kafka had it until {retired.until}): {retired.fate}{instead}")
    similar = similar_key(name)
    fail(f"{name} is not a known setting" + ("" if similar is None else f"; is {similar} meant?"))


def _describe(row: dict[str, object]) -> str:
    default = row["default"]
    here = f"{row['here']}. {row['reason']}" if row["reason"] else row["here"]
    lines = [
        f"{row['name']} ({row['of']})",
        f"  {row['documentation']}",
        f"  type:     {row['type']}: {row['accepted']}",
        f"  default:  {'none' if default is None else default or 'empty'}",
        f"  changes:  {row['changes']}",
        f"  here:     {here}",
    ]
    return "\n".join(lines) + "\n"
