"""Kill -9 at random moments of every command that writes; run again; is the result that of a run that nobody killed?

    python experiments/kills/run.py [--only NAME ...] [--kills 20] [--seed 0] [--check]

Half of the moments are random times of the run, half are before a random one of its file operations. Every other run starts with
an older file at each target. After every kill the command runs again, once for each different set of files that kills left.

Prints a table and writes `expected.json`; `--check` compares instead and exits with 1 where a file was partial, something was
left behind, or a result differs.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import check_or_keep, start
from experiments.kills.commands import COMMANDS, Writes
from experiments.kills.inputs import KEPT, write_inputs
from experiments.kills.killed import Ended, files_in, moments, ran, same

EXPECTED = Path(__file__).resolve().parent / "expected.json"
PARTS = (
    "prism_jax.shell.app",
    "jax",
    "numpyro",
    "inference",
    "pandas",
    "pyarrow.parquet",
    "matplotlib.figure",
    "scipy.stats",
)
OLD = b"an older file\n"
Files = Mapping[str, bytes]
Left = frozenset[tuple[str, bytes]]  # names and contents of all files; names of temporary ones are made by chance


@dataclass
class Counts:
    """What came of the kills of one command.

    Attributes:
        kills: runs that were killed before they ended.
        partial: targets that were neither as before nor complete.
        litter: kills after which a temporary file was there; left: of these, still after the next run.
        resumed: kills after which there was something to go on from.
        identical: next runs whose files, and no others, are those of the reference.
    """

    kills: int = 0
    partial: int = 0
    litter: int = 0
    left: int = 0
    resumed: int = 0
    identical: int = 0

    def figures(self) -> dict[str, float]:
        """Those that do not depend on the speed of the machine, as shares of kills where they count kills."""
        return {"partial": self.partial, "left": self.left, "identical": self.identical / max(self.kills, 1)}


@dataclass(frozen=True)
class Reference:
    """A run that nobody killed: how it ended, what it read, and what it wrote."""

    ended: Ended
    inputs: Files
    written: Files


def reference(command: Writes, inputs: Path, folder: Path) -> Reference:
    """The command run as a whole, twice: the second time is that of a warm cache of compiled programs.

    Raises:
        RuntimeError: it fails, writes nothing, or does not write the same twice.
    """
    read = files_in(inputs)
    first, again = (_afresh(command, inputs, folder / str(index)) for index in range(2))
    written = {name: data for name, data in files_in(folder / "1").items() if name not in read}
    if first.code not in command.codes or not written:
        what = f"exit code {first.code}, {len(written)} files written"
        raise RuntimeError(f"{command.line}: {what}")
    if any(
        not same(data, written.get(name), name) for name, data in files_in(folder / "0").items() if name not in read
    ):
        raise RuntimeError(f"{command.line}: does not write the same twice")
    return Reference(again, read, written)


class Killer:
    """Kills a command, and runs it again after each kill that left something that no kill had left before."""

    def __init__(self, command: Writes, whole: Reference, inputs: Path, folder: Path) -> None:
        self._command, self._whole, self._inputs, self._folder = command, whole, inputs, folder
        self._targets = [name for name in whole.written if name not in command.resumed]
        self._again: dict[Left, tuple[bool, bool]] = {}

    def kill(self, moment: Mapping[str, Any], old: bool) -> Counts:
        """One kill; nothing where the run was faster this time.

        Args:
            old: whether there is an older file at each target.
        """
        shutil.copytree(self._inputs, self._folder)
        for name in self._targets if old else ():
            (self._folder / name).parent.mkdir(exist_ok=True)
            (self._folder / name).write_bytes(OLD)
        was_killed = ran(self._command.line, self._folder, **moment).code == -9
        counts = self._counts(files_in(self._folder), OLD if old else None) if was_killed else Counts()
        shutil.rmtree(self._folder)
        return counts

    def _counts(self, found: Files, before: bytes | None) -> Counts:
        written, resumed = self._whole.written, set(self._command.resumed) & set(found)
        litter = set(found) - set(self._whole.inputs) - set(written) - set(self._command.resumed)
        broken = [
            name
            for name in self._targets
            if found.get(name) != before and not same(found.get(name), written[name], name)
        ]
        left = frozenset((name if name not in litter else "a temporary file", data) for name, data in found.items())
        if left not in self._again:
            self._again[left] = self._run_again()
        is_left, is_identical = self._again[left]
        return Counts(1, len(broken), int(bool(litter)), int(is_left), int(bool(resumed)), int(is_identical))

    def _run_again(self) -> tuple[bool, bool]:
        """Whether a file remains that the reference did not leave, and whether all others are those of the reference."""
        ended, after = ran(self._command.line, self._folder), files_in(self._folder)
        expected = {**self._whole.inputs, **self._whole.written}
        alike = set(after) == set(expected) and all(same(after[name], expected[name], name) for name in expected)
        return bool(set(after) - set(expected)), alike and ended.code == self._whole.ended.code


def measured(command: Writes, inputs: Path, folder: Path, n_kill: int, seed: int) -> tuple[Counts, Reference]:
    """Counts of `n_kill` kills; a run that ends before its moment is tried again with another one."""
    rng = np.random.default_rng([seed, *command.name.encode()])
    whole = reference(command, inputs, folder)
    killer = Killer(command, whole, inputs, folder / "killed")
    total, tried = Counts(), 0
    while total.kills < n_kill and tried < 3 * n_kill:
        for moment in moments(whole.ended, n_kill - total.kills, rng):
            found = killer.kill(moment, old=tried % 2 == 1)
            total = Counts(*(a + b for a, b in zip(vars(total).values(), vars(found).values(), strict=True)))
            tried += 1
    return total, whole


def _afresh(command: Writes, inputs: Path, folder: Path) -> Ended:
    shutil.copytree(inputs, folder)
    return ran(command.line, folder)


def prepared(folder: Path, seed: int) -> Path:
    """The folder of inputs, with a fit for commands that read one."""
    folder.mkdir()
    write_inputs(folder, seed)
    ran(f"fit fleet times.csv -o {KEPT}", folder)
    return folder


def run(names: Sequence[str], n_kill: int, seed: int) -> dict[str, dict[str, float]]:
    """Prints the table; returns the figures of each command."""
    start()
    for part in PARTS:
        importlib.import_module(part)
    columns = ("kills", "partial", "litter", "left", "resumed", "identical")
    print(f"{'command':<42}{'seconds':>8}{'operations':>11}" + "".join(f"{name:>10}" for name in columns), flush=True)
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        inputs = prepared(Path(scratch) / "inputs", seed)
        for index, command in enumerate(one for one in COMMANDS if not names or one.name in names):
            folder = Path(scratch) / str(index)
            found, whole = measured(command, inputs, folder, n_kill, seed)
            shutil.rmtree(folder)
            row = "".join(f"{getattr(found, name):>10}" for name in columns)
            print(f"{command.name:<42}{whole.ended.elapsed_s:>8.1f}{whole.ended.n_operation:>11}{row}", flush=True)
            figures[command.name] = found.figures()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=[one.name for one in COMMANDS], metavar="NAME")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    started = time.monotonic()
    figures = run(asked.only, asked.kills, asked.seed)
    print(f"{time.monotonic() - started:.0f} s")
    return check_or_keep(figures, EXPECTED, asked.check)


if __name__ == "__main__":
    raise SystemExit(main())
