"""docs/extending.md is true: its code runs, the program then knows what was added, and every section names its test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "extending.md"
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROOF = re.compile(r"`(tests/extensions/test_\w+\.py)`")
CALL = re.compile(r"# python (\w+\.py) (.+)$", re.MULTILINE)
RECIPE = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='recipe')"
SHOWN = RECIPE + "; from prism_jax.shell.app import main; raise SystemExit(main(sys.argv[2:]))"
MLP = """\
model: {kind: plain_mlp, name: wide, n_blocks: 8, width: 8192}
cluster: dgx-h100
plan: {pp: 2, dp: 4, micro_batch: 512, global_batch: 16384, zero_stage: 1}
"""
KNOWN = {  # section -> what is run after its code, and a word that is printed
    "A pipeline schedule": ("show schedules", "1f1b_eager"),
    "A framework": ("show frameworks", "mytrainer"),
    "A kind of model": ("check job.yaml", "wide"),
    "An objective": ("show objectives", "mean_2sd"),
    "A training log": ("show logs", "mytrainer"),
    "A command": ("--help", "Print the tokens of a step."),
    "A kernel class": ("show kernels", "conv"),
    "A report": ("show schemas", "prism-jax/batch/1"),
}


def sections() -> dict[str, str]:
    return dict(SECTION.findall(PAGE.read_text(encoding="utf-8")))


def recipes() -> list[tuple[str, str]]:
    return [(title, block) for title, text in sections().items() for block in BLOCK.findall(text)]


def run(folder: Path, *arguments: str) -> str:
    """What a process of its own prints, so that registries stay as they are here."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


OTHERS = [one for one in recipes() if one[0] not in KNOWN]  # the test below runs those of the known


@pytest.mark.parametrize(("title", "code"), OTHERS, ids=lambda value: value.splitlines()[0][:40])
def test_code_runs(title: str, code: str, tmp_path: Path):
    (tmp_path / "recipe.py").write_text(code)
    run(tmp_path, "-c", RECIPE, "recipe.py")


@pytest.mark.parametrize("title", KNOWN)
def test_the_program_knows_what_was_added(title: str, tmp_path: Path):
    arguments, word = KNOWN[title]
    (tmp_path / "recipe.py").write_text("\n".join(BLOCK.findall(sections()[title])))
    (tmp_path / "job.yaml").write_text(MLP)
    assert word in run(tmp_path, "-c", SHOWN, "recipe.py", *arguments.split())


def test_calls_in_comments_run(tmp_path: Path):
    calls = [(code, *call) for _, code in recipes() for call in CALL.findall(code)]
    assert calls
    for code, name, arguments in calls:
        (tmp_path / name).write_text(code)
        assert run(tmp_path, name, *arguments.split()).strip()


@pytest.mark.parametrize("title", sections())
def test_every_section_has_a_recipe_and_names_its_test(title: str):
    text = sections()[title]
    assert BLOCK.search(text)
    proofs = PROOF.findall(text)
    assert proofs
    assert [name for name in proofs if not (ROOT / name).exists()] == []
