"""Answers public questions with prism-jax, and compares with what is right: `python -m experiments.public_cases.run [K1 K2 ...]`.

The questions are inputs in `../shared/data/cases` (`--data FOLDER`), and where none is there a small one in `own`; what is right
stands with its source in cases.toml. Each entry is a command and one expectation:

- `figure`, `right`, `within`: a number of the JSON by its dotted key, and the largest relative error; with `per`, a second
  command, the ratio of both; with `over`, a second figure of the same command, the ratio of both; `most` or `least` instead of
  `right`: a bound;
- `inside`: a number that the 90% interval of the model (`model_band_s`) holds, in units of the step time; `tokens_per_s_per_gpu`
  is converted;
- `files`: a glob; the command is run for each file, which stands for `{file}` in it, but for those in `but`; the entry is right
  if all but `misses` of them are;
- `says`: a regular expression that is found in the text with `--details`, `silent`: one that is not; `exit`: the exit code, by
  default 0 or 1 (a verdict, such as that the job does not fit).

A kind is right if all of its entries are. Exit code 1 if one is not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.golden.transcript import captured
from prism_jax.shell.app import main as prism_jax

HERE = Path(__file__).parent
CASES = HERE / "cases.toml"
DATA = Path(__file__).parents[2].parent / "shared" / "data" / "cases"
VERDICTS = (0, 1)  # exit codes of an answer; 1 says, for example, that the job does not fit


@dataclass(frozen=True)
class Case:
    """One command with what is right of its answer, see the head of this module."""

    kind: str
    command: str
    source: str
    figure: str = ""
    right: float | None = None
    within: float = 0.20
    per: str = ""
    over: str = ""
    most: float | None = None
    least: float | None = None
    inside: float | None = None
    says: str = ""
    silent: str = ""
    exit: int | None = None
    files: str = ""
    but: tuple[str, ...] = ()
    misses: int = 0


@dataclass(frozen=True)
class Answer:
    """What a case gave.

    Attributes:
        good: ours is as right as asked.
    """

    case: Case
    ours: str
    right: str
    good: bool

    def line(self) -> str:
        verdict = "right" if self.good else "WRONG"
        asked = f"{self.case.command}  {self.case.figure or self.case.says}"
        return f"{self.case.kind:<4} {verdict}  {self.ours:>12}  right {self.right:<24} {asked}"


@cache
def printed(command: str) -> tuple[int, str, str]:
    """Returns the exit code, stdout and stderr of one command, run in the folder of cases."""
    return captured(prism_jax, shlex.split(command))


def number(command: str, figure: str) -> float:
    """Returns a figure of the JSON of a command by its dotted key; whole numbers are places of a list.

    Raises:
        LookupError: the command failed, or has no such figure.
    """
    code, out, err = printed(f"{command} --json")
    if code not in VERDICTS:
        raise LookupError(f"exit {code}: {err.strip().splitlines()[-1] if err.strip() else ''}")
    found: Any = json.loads(out)
    for key in figure.split("."):
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (LookupError, ValueError, TypeError):
            raise LookupError(f"no {figure}") from None
    return float(found)


def answer(case: Case) -> Answer:
    """Runs the command of a case and compares."""
    if case.files:
        return _of_files(case)
    try:
        if case.inside is not None:
            return _inside(case)
        if case.figure:
            return _number(case)
    except LookupError as error:
        return Answer(case, str(error)[:60], f"{case.right or case.inside or ''}", good=False)
    code, out, err = printed(f"{case.command} --details" if case.says or case.silent else case.command)
    text = out + err
    good = (
        code in (VERDICTS if case.exit is None else (case.exit,))
        and (not case.says or bool(re.search(case.says, text)))
        and (not case.silent or not re.search(case.silent, text))
    )
    return Answer(case, f"exit {code}", f"exit {'0 or 1' if case.exit is None else case.exit}", good)


def _of_files(case: Case) -> Answer:
    """Every file of a glob, with the names of those that are wrong."""
    found = [path for path in sorted(Path().glob(case.files)) if path.name not in case.but]
    each = [(path.name, answer(replace(case, command=case.command.format(file=path), files=""))) for path in found]
    wrong = [f"{name} ({one.ours})" for name, one in each if not one.good]
    said = f"{len(each) - len(wrong)} of {len(each)}" + (f", not {', '.join(wrong)}" if wrong else "")
    return Answer(case, said, f"all but {case.misses}", bool(each) and len(wrong) <= case.misses)


def _number(case: Case) -> Answer:
    ours = number(case.command, case.figure)
    if case.per or case.over:
        ours /= number(case.per or case.command, case.over or case.figure)
    if case.right is not None:
        good, right = abs(ours / case.right - 1.0) <= case.within, f"{case.right:.4g} +- {case.within:.0%}"
    else:
        low, high = case.least, case.most
        good = (low is None or ours >= low) and (high is None or ours <= high)
        right = f"{'' if low is None else f'{low:.4g} <= '}ours{'' if high is None else f' <= {high:.4g}'}"
    return Answer(case, f"{ours:.4g}", right, good)


def _inside(case: Case) -> Answer:
    """The interval of the step time, in the unit of the figure; a throughput falls as the time grows."""
    ours, p50 = number(case.command, case.figure), number(case.command, "step_time_s.p50")
    low, high = (number(case.command, f"model_band_s.{p}") for p in ("p5", "p95"))
    if case.figure.startswith("step_time_s"):
        interval = low, high
    else:
        interval = ours * p50 / high, ours * p50 / low
    assert case.inside is not None
    good = interval[0] <= case.inside <= interval[1]
    return Answer(case, f"{ours:.4g} ({interval[0]:.4g}-{interval[1]:.4g})", f"{case.inside:.4g} inside", good)


def write_configurations(folder: Path) -> None:
    """Writes each line of configs.jsonl.gz as a file, with a job `NAME.yaml` that names it."""
    with gzip.open(folder / "configs.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            name = one["file"].removesuffix(".json").removesuffix("_config")
            (folder / f"{name}.json").write_text(json.dumps(one["config"]), encoding="utf-8")
            job = {"model": {"hf_config": f"{name}.json"}, "cluster": {"preset": "dgx-h100", "n_devices": 8}}
            job["plan"] = {"dp": 8, "micro_batch": 1, "global_batch": 8, "seq_len": 512}
            (folder / f"{name}.yaml").write_text(json.dumps(job), encoding="utf-8")


def cases(kinds: Iterable[str] = ()) -> list[Case]:
    """Reads cases.toml; `kinds` are those wanted, all if none is given."""
    wanted = set(kinds)
    rows = tomllib.loads(CASES.read_text(encoding="utf-8"))["case"]
    return [Case(**row | {"but": tuple(row.get("but", ()))}) for row in rows if not wanted or row["kind"] in wanted]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER")
    given = parser.parse_args(arguments)
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(given.data, folder, dirs_exist_ok=True)
        shutil.copytree(HERE / "own", Path(folder) / "own")
        os.chdir(folder)
        write_configurations(Path("hf"))
        for case in cases(given.kinds):
            answers.append(answer(case))
            print(answers[-1].line(), flush=True)
    wrong = {one.case.kind for one in answers if not one.good}
    kinds = {one.case.kind for one in answers}
    print(f"{len(kinds) - len(wrong)} of {len(kinds)} kinds right; not: {', '.join(sorted(wrong)) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
