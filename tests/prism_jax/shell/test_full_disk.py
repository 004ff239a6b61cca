"""A full disk, at any size and in any command that writes: exit 1, one message with the file, targets as they were, no crash."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.kills.commands import COMMANDS
from experiments.kills.inputs import KEPT, write_inputs

ROOT = Path(__file__).resolve().parents[3]
WRITES = {command.name: command for command in COMMANDS}
FAST = ("init", "fit fleet --method map", "trace export")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in")
    write_inputs(folder, seed=0)
    return folder


def filled(folder: Path, inputs: Path, names: Sequence[str], shares: list[float]) -> dict[str, Any]:
    """What became of each command."""
    cases = [
        [WRITES[name].line, WRITES[name].resumed, str(inputs), str(folder / str(index)), shares]
        for index, name in enumerate(names)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.files.full_disk"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


def check(name: str, found: dict[str, Any]) -> None:
    command, targets = WRITES[name], found["targets"]
    assert found["code"] in command.codes, name
    assert (found["code"] == 1) == any(target.endswith(".failed.npz") for target in targets), name
    assert targets, name
    for one in found["limited"]:
        assert one["code"] == 1, (name, one)
        assert one["said"].count("\n") == 1, (name, one)
        assert one["said"].endswith(": File too large\n"), (name, one)
        assert any(target.split(".")[0] in one["said"] for target in targets), (name, one)
        assert set(one["more"]) <= set(command.resumed), (name, one)  # whole, and the next run goes on from it
        assert len(one["changed"]) < len(targets) or one["more"], (name, one)  # a small one may have had space


def test_a_full_disk_ends_in_one_message(inputs: Path, tmp_path: Path):
    found = filled(tmp_path, inputs, FAST, [0.0, 0.7])
    for name in FAST:
        check(name, found[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_of_any_size_ends_in_one_message(name: str, inputs: Path, tmp_path: Path):
    if name == "fit report":
        words = ["fit", "fleet", f"{inputs}/times.csv", "--method", "map", "-q", "-o", f"{inputs}/{KEPT}"]
        subprocess.run([sys.executable, "-m", "prism_jax", *words], cwd=ROOT, check=True)
    shares = np.random.default_rng(list(name.encode())).uniform(0.0, 0.99, 30).tolist()
    check(name, filled(tmp_path, inputs, [name], shares)[name])
