"""`pybroker service install`: a broker that systemd runs."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import fail
from pybroker.cli.service_steps import step_options, tell_and_make

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig

_EXIT_BAD_CONFIG = 2


@click.command(name="install")
@click.argument("properties", required=False, type=click.Path(path_type=PurePosixPath))
@click.option(
    "--profile", metavar="NAME", help="The hardware profile whose times the unit gets; this machine's if not given."
)
@click.option(
    "--executable",
    type=click.Path(path_type=PurePosixPath),
    help="The program that the unit starts; this one if not given.",
)
@click.option("--now", is_flag=True, help="Start it, now and at each boot.")
@step_options
def command(
    properties: PurePosixPath | None,
    profile: str | None,
    executable: PurePosixPath | None,
    now: bool,
    root: Path,
    dry_run: bool,
    yes: bool,
) -> None:
    """Let systemd run a broker with PROPERTIES, or /etc/pybroker/server.properties.

    Writes a unit, a drop-in for the hardware profile, another one for log dirs outside of /var/lib/pybroker, the user
    pybroker and its directories. Writes settings to begin with where there are none. Existing files are left alone, so
    the command may be called again, as after an upgrade or when log.dirs has changed.

    Exit status: 0, 1 when something fails, or you say no, 2 when the configuration is not accepted.
    """
    from pybroker.service.deployment import PROPERTIES, DeploymentError, files
    from pybroker.service.installation import install_steps, is_booted

    properties = properties or PROPERTIES
    if not properties.is_absolute():
        properties = PurePosixPath(Path(properties).absolute())
    config = _load_config(properties, root)
    try:
        program = executable or _this_program()
        wanted = files(program, properties, profile or _profile_here(config, root), config)
        steps = install_steps(wanted, root, now=now)
    except (DeploymentError, OSError) as error:
        fail(str(error))
    if not steps:
        click.echo("Everything is in place.")
        return
    click.echo(f"To run `{program} serve {properties}` as a service:")
    if not tell_and_make(steps, dry_run=dry_run, yes=yes):
        sys.exit(0 if dry_run else 1)
    if root == Path("/") and is_booted() and not now:
        click.echo(
            "Installed. `systemctl enable --now pybroker` starts it, `systemctl restart pybroker` one that runs."
        )


def _load_config(properties: PurePosixPath, root: Path) -> BrokerConfig:
    """A file that does not exist yet is read as it will begin."""
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.definition import ConfigError
    from pybroker.service.deployment import PROPERTIES, STATE_DIRECTORY
    from pybroker.service.installation import below

    path = below(root, properties)
    try:
        if properties == PROPERTIES and not path.exists():
            return BrokerConfig.load(None, [f"log.dirs={STATE_DIRECTORY}"])
        return BrokerConfig.load(str(path), ())
    except ConfigError as error:
        click.echo(f"pybroker: {error}", err=True)
        sys.exit(_EXIT_BAD_CONFIG)


def _this_program() -> PurePosixPath:
    """The script beside the interpreter that runs this."""
    from pybroker.service.deployment import DeploymentError, check_visible

    # Both may be hidden from a service: the environment, and the interpreter that it was made with.
    found = Path(sys.executable).with_name("pybroker")
    if not found.exists():
        raise DeploymentError(f"{found} is missing: name the program with --executable")
    check_visible(PurePosixPath(found), "the program")
    check_visible(PurePosixPath(Path(sys.executable).resolve()), "its interpreter")
    return PurePosixPath(found)


def _profile_here(config: BrokerConfig, root: Path) -> str:
    """The one that the broker gets on this machine. Nobody knows the machine that an image will run on."""
    from pybroker.config.definition import ConfigError
    from pybroker.profiles import choose_here
    from pybroker.profiles.library import GENERIC

    if root != Path("/"):
        return GENERIC
    try:
        choice = choose_here(config)
    except ConfigError as error:
        click.echo(f"pybroker: {error}", err=True)
        sys.exit(_EXIT_BAD_CONFIG)
    return choice.profile.name if choice.recognised is None else choice.recognised.name
