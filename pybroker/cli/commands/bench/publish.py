"""`pybroker bench publish`: result files of this machine into the pool."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pybroker.results.context import Context
    from pybroker.results.row import Rejection, Row

_EXIT_REJECTED = 1
_EXIT_NOT_PUBLISHED = 3
_FIELDS = ("machine", "commit", "profile", "backend", "engine", "durability")


def _parameters(_: click.Context, __: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (name, sign, _value) in zip(pairs, split, strict=True) if not name or not sign]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} should be NAME=VALUE")
    return {name: value for name, _sign, value in split}


@click.command(name="publish")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    metavar="HOST:PORT",
    help="Publish to a topic of this broker (needs confluent-kafka).",
)
@click.option("--topic", default="benchmarks", show_default=True, help="The topic; made when it is missing.")
@click.option("--directory", type=click.Path(path_type=Path), help="Publish to a file in this directory instead.")
@click.option("--machine", help="The machine's name in the pool, when the detected one will not do.")
@click.option("--commit", help="The commit that was measured, when it is not the one checked out here.")
@click.option("--profile", help="Hardware profile of the broker, for files that do not tell; so the next three.")
@click.option("--backend", help="I/O backend.")
@click.option("--engine", help="Append engine.")
@click.option("--durability", help="Durability mode.")
@click.option("--parameter", "parameters", multiple=True, callback=_parameters, metavar="NAME=VALUE")
@click.option("--data", type=click.Path(exists=True, path_type=Path), default=Path("."), help="Dir of the logs' disk.")
def command(
    paths: tuple[Path, ...],
    bootstrap: str | None,
    topic: str,
    directory: Path | None,
    parameters: dict[str, str],
    data: Path,
    **fields: str | None,
) -> None:
    """Turn result files into rows of the pool's schema and publish them.

    A PATH is a result of pbload, of bench.peers.compare, of pytest-benchmark or of ASV, or a directory of such. The
    machine's facts and the commit are found here unless the file tells them. Results that cannot be used are published
    as well, with the reason, and end up in the pool's quarantine. Publishing the same file again does no harm.

    Exit status: 0, 1 something went to quarantine, 2 the command line is wrong, 3 the pool could not be reached.
    """
    from pybroker.results.context import detect
    from pybroker.results.publish import PublishError, to_directory, to_topic
    from pybroker.results.reader import read, result_files
    from pybroker.results.row import Rejection

    if (bootstrap is None) == (directory is None):
        raise click.UsageError("say where to publish to: either --bootstrap or --directory")
    files = [file for path in paths for file in result_files(path)]
    if not files:
        raise click.UsageError(f"no .json below {', '.join(map(str, paths))}")
    results = list(read(files, _context(detect(data, Path.cwd()), fields, parameters)))
    try:
        if bootstrap is not None:
            to_topic(results, bootstrap, topic)
            where = f"topic {topic} at {bootstrap}"
        elif directory is not None:
            where = str(to_directory(results, directory))
    except PublishError as error:
        click.echo(f"pybroker bench publish: {error}", err=True)
        sys.exit(_EXIT_NOT_PUBLISHED)
    rejections = [each for each in results if isinstance(each, Rejection)]
    _print(results, rejections, where)
    sys.exit(_EXIT_REJECTED if rejections else 0)


def _context(detected: Context, fields: dict[str, str | None], parameters: dict[str, str]) -> Context:
    given: dict[str, Any] = {name: value for name in _FIELDS if (value := fields[name])}
    if "commit" in given:
        given["commit_time"] = ""  # that of the commit checked out here is another one's
    return replace(detected, parameters=parameters, **given)


def _print(results: list[Row | Rejection], rejections: list[Rejection], where: str) -> None:
    click.echo(f"{len(results) - len(rejections)} rows to {where}")
    for rejection in rejections:
        click.echo(f"quarantine: {rejection.source}: {rejection.reason}: {rejection.detail}", err=True)
    if rejections:
        counts = Counter(str(rejection.reason) for rejection in rejections)
        summary = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        click.echo(f"{len(rejections)} to quarantine: {summary}", err=True)
