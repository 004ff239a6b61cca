"""The README is true: its code runs, its output is what the code prints, its job loads, its links lead somewhere.

Blocks after `<!-- run -->` are executed, `<!-- output -->` blocks are compared with what the block before printed (quantiles
within 2 %), `<!-- job -->` blocks are loaded.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from prism_jax.cli.app import main
from prism_jax.io.job.load_job import load_job

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- (run|output|job) -->\n```(\w+)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
QUANTILE = re.compile(r"^ *(p50|p95|p99) +([\d.]+)", re.MULTILINE)


class Block(NamedTuple):
    """One marked block of the README."""

    use: str
    language: str
    text: str


def blocks() -> list[Block]:
    return [Block(*found) for found in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))]


def runnable() -> list[tuple[Block, str]]:
    """Blocks to run, each with the output that the README prints below it, if any."""
    found = blocks()
    after = [*found[1:], Block("", "", "")]
    return [(b, n.text if n.use == "output" else "") for b, n in zip(found, after, strict=True) if b.use == "run"]


@pytest.mark.parametrize(("block", "printed"), runnable(), ids=lambda value: getattr(value, "language", ""))
def test_code_runs_and_prints_what_the_readme_shows(
    block: Block,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    if block.language == "python":
        exec(compile(block.text, "README.md", "exec"), {})
    else:
        for command in block.text.strip().splitlines():
            program, *arguments = shlex.split(command)
            assert program == "prism-jax"
            assert main(arguments) == 0, command
    shown, actual = dict(QUANTILE.findall(printed)), dict(QUANTILE.findall(capsys.readouterr().out))
    assert shown.keys() <= actual.keys()
    for name, value in shown.items():
        assert float(actual[name]) == pytest.approx(float(value), rel=0.02), name


def test_files_that_commands_name_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    line = next(t for b in blocks() for t in b.text.splitlines() if "--trace" in t)
    assert main(shlex.split(line)[1:]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step.json.gz", "step.png"]


def test_the_job_loads(tmp_path: Path):
    (job,) = (block for block in blocks() if block.use == "job")
    path = tmp_path / "job.yaml"
    path.write_text(job.text)
    assert load_job(path).plan.n_devices == 512


@pytest.mark.parametrize(
    "page", ["README.md", "docs/method.md", "docs/glossary.md", "docs/benchmarks.md", "docs/design.md"]
)
def test_links_lead_to_files(page: str):
    file = ROOT / page
    for target in LINK.findall(file.read_text(encoding="utf-8")):
        assert (file.parent / target.split("#")[0]).exists(), target
