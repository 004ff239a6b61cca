"""Kill -9 of commands that write: a small version of experiments/kills, and that no command has been forgotten."""

import os
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from experiments.extra_fits import FITS
from experiments.kills.commands import COMMANDS
from prism_jax.shell.catalogue import COMMANDS as SHIPPED
from prism_jax.shell.command import runner_of

ROOT = Path(__file__).resolve().parents[2]
WRITING = {"--out", "--output", "--plot", "--resume", "--trace", "--perfetto", "--hostfile", "--rankfile", "--csv"}
LEFT_OUT = {
    "cloud": {"--resume"},  # is read alone
    "queue": {"--plot"},  # as that of `sweep`
    "report": {"--plot"},  # is written as by the command that made the report
}


def options() -> dict[str, set[str]]:
    """Full name of every command -> its options."""
    found = {}
    ours = [
        command for command in SHIPPED if command.name.removeprefix("fit ") not in FITS
    ]  # those are no part of the product
    for command in ours:
        taken = signature(runner_of(command.load(), command.fixed)).parameters.values()
        found[command.name] = {option for one in taken for option in one.annotation.__metadata__[0].name or ()}
    return found


def test_every_option_that_names_a_file_to_write_is_measured():
    found = options()
    assert len(found) > 20
    for name, known in found.items():
        used = {word for one in COMMANDS if one.line.startswith(f"{name} ") for word in one.line.split()}
        used |= {"--out", "--output"} if "-o" in used else set()
        assert known & WRITING - LEFT_OUT.get(name, set()) <= used, name


@pytest.mark.slow
def test_what_is_killed_leaves_nothing_half_done(tmp_path: Path):
    command = [sys.executable, str(ROOT / "experiments/kills/run.py"), "--check", "--kills", "3"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--only", "init", "trace export"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("as expected\n")
