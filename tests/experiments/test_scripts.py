"""Scripts that pages of this checkout tell people to run exist and start."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for folder in ("docs", "experiments", "benchmarks") for page in (ROOT / folder).rglob("*.md")),
]
SCRIPT = re.compile(r"python (?!my_|measure_)(\S+\.py)")  # the reader's own, and what `measure` writes
OF_TORCH = (
    "experiments/local_cluster/record.py",
    "experiments/local_cluster/train.py",
    "experiments/recorded_jobs/record.py",
)
WITHOUT_OPTIONS = ("benchmarks/speed.py", "docs/refresh.py")
PRINTED = sorted({name for page in PAGES for name in SCRIPT.findall(page.read_text(encoding="utf-8"))})
STARTED = [name for name in PRINTED if name not in (*OF_TORCH, *WITHOUT_OPTIONS)]


def test_pages_print_scripts():
    assert len(PRINTED) >= 20


@pytest.mark.parametrize("name", PRINTED)
def test_printed_script_exists(name):
    assert (ROOT / name).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTED)
def test_printed_script_starts(name, tmp_path):
    command = [sys.executable, str(ROOT / name), "--help"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "usage:" in done.stdout
