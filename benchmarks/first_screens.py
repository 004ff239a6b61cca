"""First screens of commands at 80 columns: lines, missing parts, widest line.

    python -m benchmarks.first_screens [--only 'predict*'] [--show] [--fail]

Runs every command whose report has a card: the one of `tests/support/report_cases.py`, and the variants below, which take the
shipped jobs. An estimate (its report has an interval in JSON, or its card shows one) has to tell its interval and what is
assumed; every card its verdict, a figure, the evidence and what to do next. Bars: at most 10 lines, no part missing, 80 columns.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from unittest.mock import patch

from prism_jax.core.page import INTERVAL, Card
from prism_jax.core.report import Report
from prism_jax.fits.models import MODELS
from prism_jax.shell import command as commands
from prism_jax.shell.app import main as run_command
from prism_jax.show.reports import REPORTS
from tests.support.intervals import estimates
from tests.support.report_cases import CASES, write_case_inputs

from .golden.cases import FITS

COLUMNS, MOST_LINES = 80, 10
GPUS = {  # shipped jobs and their sizes
    "bert_large_1024": 1024, "deepseek_v3_2048": 2048, "dit_xl_2_32": 32, "dlrm_dcnv2_64": 64, "gpt3_175b_1024": 1024,
    "llama2_7b_fsdp_64": 64, "llama3_405b_16384": 16384, "llama3_405b_16384_131k": 16384, "llama3_405b_65536": 65536,
    "llama3_405b_8192": 8192, "resnet50_64": 64, "t5_11b_256": 256, "vit_h_14_64": 64,
}  # fmt: skip
ALL = tuple(GPUS)
LANGUAGE = ("bert_large_1024", "llama2_7b_fsdp_64", "gpt3_175b_1024")
SMALL = ("dit_xl_2_32", "llama2_7b_fsdp_64", "vit_h_14_64", "t5_11b_256")
VARIANTS: dict[
    str, tuple[tuple[str, ...], str]
] = {  # kind -> jobs, and the command with {job}, its {n} GPUs, {half} of them
    "prediction": (ALL, "predict {job} --samples 64"),
    "check": (ALL, "check {job}"),
    "run": (ALL, "run {job} --steps 100000 --worlds 200 --reliability llama3-2024"),
    "sweep": (ALL, "sweep {job} --set software.tuning=typical,vendor --samples 64"),
    "scaling": (ALL, "scale {job} --gpus {half},{n} --samples 64"),
    "comparison": (ALL, "compare {job} llama2_7b_fsdp_64 --samples 64"),
    "capture": (ALL, "capture {job}"),
    "tune": (
        ALL,
        "search {job} --continuous checkpoint --mtbf 30h --checkpoint 600s --checkpoint-write 40s --restart 300s",
    ),
    "log-validation": (("train.log",), "validate {job} --device a100-80gb"),
    "study": (LANGUAGE, "search {job}"),
    "sizes": (SMALL[:2], "search {job} --gpus {half} --gpus {n}"),
    "capacity": (LANGUAGE[:2], "capacity {job} --fleet {n}xh100-sxm --days 30 --samples 64"),
    "cloud": (("bert_large_1024", "llama2_7b_fsdp_64"), "cloud {job} --steps 20000 --most-gpus 64 --worlds 200"),
    "placement": (SMALL, "place {job} --slowdowns nodes-{n}.csv"),
    "sharding": (("dlrm_dcnv2_64",), "shard {job}"),
    "queue": (("fifo", "sjf", "edf"), "queue queue.csv --seeds 2 --gpus 8 --policy {job}"),
    "watch": (("phases.csv", "log.csv", "maxtext.log"), "watch {job}"),
    "trace-info": (("phases.csv", "maxtext.log", "torchtitan.log"), "trace info {job}"),
    "trace-prediction": (("phases.csv", "maxtext.log"), "trace predict {job} --draws 400"),
    "what-if": (("--replace-rank 3", "--swap 0:1"), "trace what-if local_cluster --draws 400 {job}"),
    "fit": (
        (
            *(fit for fit in FITS.values() if fit.split()[0] in MODELS),
            *(f"{name} {name}.csv" for name in ("lengths", "routing", "links")),
        ),
        "fit {job}",
    ),
}
REFUSED = (
    "capture dlrm_dcnv2_64",
    "scale dlrm_dcnv2_64 --gpus 32,64 --samples 64",
)  # look-ups cannot be written down; memory


@dataclass(frozen=True)
class Screen:
    """A first screen as it was printed.

    Attributes:
        lines: at `COLUMNS` columns.
        missing: parts that are not there.
    """

    command: str
    lines: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def widest(self) -> int:
        """Columns of the widest line."""
        return max(map(len, self.lines), default=0)

    @property
    def is_good(self) -> bool:
        """Whether it keeps all three bars."""
        return len(self.lines) <= MOST_LINES and self.widest <= COLUMNS and not self.missing


def kinds_with_a_card() -> list[str]:
    """Returns kinds of reports that lay out a first screen."""
    return [kind for kind in CASES if REPORTS.named(kind).card is not Report.card]


def missing_parts(report: Report, card: Card) -> tuple[str, ...]:
    """Returns the parts that the first screen of a report lacks."""
    shows_one = any(INTERVAL.search(text) for text in card.facts.values())
    return card.missing(is_estimate=shows_one or any(estimates(report.to_dict())))


def screen_of(command: str) -> Screen | None:
    """Runs a command in the current folder and returns its first screen; None where it answers by no card.

    Raises:
        RuntimeError: the command refuses its input.
    """
    answers: list[Report] = []

    def emit(answer, *rest):
        answers.append(answer)
        return printed(answer, *rest)

    printed, out, talk = commands.emit, io.StringIO(), io.StringIO()
    columns = {"COLUMNS": str(COLUMNS)}
    with (
        patch.object(commands, "emit", emit),
        patch.dict(os.environ, columns),
        redirect_stdout(out),
        redirect_stderr(talk),
    ):
        code = run_command(shlex.split(command))
    if not answers:
        raise RuntimeError(f"{command}: exit code {code}: {talk.getvalue()}")
    card = answers[0].card()
    return (
        None if card is None else Screen(command, tuple(out.getvalue().splitlines()), missing_parts(answers[0], card))
    )


def commands_of(kind: str) -> list[str]:
    """Returns the commands that answer by a kind of report: that of the tests, and the variants."""
    jobs, text = VARIANTS.get(kind, ((), ""))
    sizes = [GPUS.get(job, 8) for job in jobs]
    filled = [text.format(job=job, n=n, half=n // 2) for job, n in zip(jobs, sizes, strict=True)]
    return [CASES[kind][0], *filled]


def measured(kinds: list[str]) -> Iterator[Screen]:
    """Yields the first screens of these kinds, each of all its commands."""
    with tempfile.TemporaryDirectory(prefix="screens-") as folder, chdir(folder):
        with redirect_stdout(io.StringIO()):
            write_case_inputs(Path(folder))
        for n in {GPUS[job] for job in SMALL}:
            rows = "".join(f"node{node},{1.0 + 0.01 * (node * 7 % 5)}\n" for node in range(n // 8))
            Path(f"nodes-{n}.csv").write_text(f"host,slowdown\n{rows}", encoding="utf-8")
        for kind in kinds:
            for one in commands_of(kind):
                if one not in REFUSED and (found := screen_of(one)) is not None:
                    yield found


def main() -> int:
    """Prints a line for each kind of report; returns 1 where a bar is missed and `--fail` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="kinds of reports")
    parser.add_argument("--show", action="store_true", help="print every screen")
    parser.add_argument("--fail", action="store_true", help="exit code 1 where a bar is missed")
    given = parser.parse_args()
    print(f"{'report':18s} {'screens':>7s} {'lines':>5s} {'widest':>6s}  missing")
    whole: list[Screen] = []
    for kind in kinds_with_a_card():
        if fnmatch(kind, given.only):
            found = list(measured([kind]))
            print(_line(kind, found), flush=True)
            whole += found
    print(_line("all", whole))
    for one in whole:
        if given.show or not one.is_good:
            print("\n".join(("", f"$ prism-jax {one.command}", *one.lines)))
            print(f"[{len(one.lines)} lines, {one.widest} columns, missing: {', '.join(one.missing) or 'nothing'}]")
    return int(given.fail and not all(one.is_good for one in whole))


def _line(kind: str, screens: list[Screen]) -> str:
    counts: dict[str, int] = {}
    for part in (part for one in screens for part in one.missing):
        counts[part] = counts.get(part, 0) + 1
    missing = ", ".join(f"{part} {n}" for part, n in counts.items()) or "nothing"
    lines = max((len(one.lines) for one in screens), default=0)
    widest = max((one.widest for one in screens), default=0)
    return f"{kind:18s} {len(screens):7d} {lines:5d} {widest:6d}  {missing}"


if __name__ == "__main__":
    sys.exit(main())
