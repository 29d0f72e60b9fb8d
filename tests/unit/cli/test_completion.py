"""What shells complete: bash itself, which is everywhere, and what zsh and fish are answered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pybroker.cli.main import main

ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}


def bash(*lines: str) -> list[list[str]]:
    """What bash offers for the last word of each line."""
    asks = "".join(
        f"COMPREPLY=(); COMP_WORDS=({line}); COMP_CWORD={line.count(' ')}\n"
        "_pybroker_completion pybroker; echo ${COMPREPLY[*]}\n"
        for line in lines
    )
    script = f'eval "$(pybroker completion bash)"\ncomplete -p pybroker >/dev/null || exit 1\n{asks}'
    done = subprocess.run(["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_bash() -> None:
    commands, subcommands, options = bash("pybroker topi", "pybroker groups d", "pybroker topics create --replication")
    assert commands == ["topics"]
    assert subcommands == ["describe", "delete", "delete-offsets"]
    assert options == ["--replication-factor"]


@pytest.mark.parametrize(("shell", "words"), [("zsh", "pybroker gro"), ("fish", "pybroker gro")])
def test_others_are_answered(shell: str, words: str) -> None:
    position = {"COMP_CWORD": "1" if shell == "zsh" else "gro"}
    environment = {**ENVIRONMENT, "_PYBROKER_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, **position}
    done = subprocess.run(["pybroker"], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert "groups" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    assert f"_PYBROKER_COMPLETE={shell}_complete" in script.stdout
    assert CliRunner().invoke(main, ["completion", "tcsh"]).exit_code == 2
