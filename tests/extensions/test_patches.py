"""What it costs to extend the package itself: one patch per extension, applied to a copy, counted in files, and run.

The other modules of this folder add things from outside. These change the package as its maintainers would, so that it is seen
when a figure, an option, a command, a field of the plan, a fit or a head of logs begins to cross more files than it should.

A patch that no longer applies, since the code around it was rewritten, is renewed in a clean checkout:

    git apply --3way --recount tests/extensions/patches/NAME.patch   # or make its few edits anew, where that fails
    python -m prism_jax.show.reports                                  # where a report has changed: its schema
    git add -N prism_jax inference && git diff -U1 prism_jax inference > tests/extensions/patches/NAME.patch
    git checkout prism_jax inference && git clean -f prism_jax inference

One line of context keeps edits near by from breaking a patch. Where an extension has come to need more files, mend the seam
before the bar.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PATCHES = Path(__file__).resolve().parent / "patches"
RUN = """
import contextlib, io, json, sys
import prism_jax
from prism_jax.shell.app import main
from prism_jax.show.reports import REPORTS, schema_file, schema_text
answers = []
for words in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    answers.append([code, *(text.buffer.getvalue().decode() for text in (out, err))])
stale = [kind.kind for kind in REPORTS if schema_file(kind).read_text(encoding="utf-8") != schema_text(kind)]
print(json.dumps({"package": prism_jax.__file__, "answers": answers, "stale": stale}))
"""
JOB = """\
model: llama-3-8b
cluster: {preset: dgx-h100, n_devices: 8}
plan: {tp: 2, dp: 4, micro_batch: 1, global_batch: 8, seq_len: 4096, zero_stage: 1, recompute: full, overlap: {dp: false}}
"""
SPACE = """\
tp: 2
pp: 1
cp: 1
micro_batch: 1
sequence_parallel: false
recompute: full
zero_stage: 1
sharding: none
overlap_dp: false
overlap_tp: false
overlap_pp: true
grad_compression: [1, 4]
"""
LOG = """\
acme starts with:
net:
  depth: 32
  width: 4096
  heads: 32
  mlp: 11008
  rows: 32000
run:
  gpus: 8
  tensor: 2
  replicas: 4
  micro: 1
  batch: 64
  tokens: 4096
step 1 took 2.5 s
"""
SMALL = ("--fast", "--samples", "64")
CATALOGUE = "prism_jax/shell/catalogue.py"


@dataclass(frozen=True)
class Answer:
    """What one command line has left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)


def apply(patch: Path, copy: Path) -> dict[str, tuple[int, int]]:
    """Applies `patch` to `copy`, and returns each file with the lines that it gained and lost."""
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(copy.parent)}  # a checkout above would claim the copy

    def git(*options: str) -> str:
        command = ["git", "apply", *options, str(patch)]
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            remedy = f"renew the patch: the head of {Path(__file__).relative_to(ROOT)} says how"
            pytest.fail(
                f"{patch.relative_to(ROOT)} does not apply to this tree; {remedy}\n{done.stderr}", pytrace=False
            )
        return done.stdout

    lines = [line.split("\t") for line in git("--numstat").splitlines()]
    git()
    return {file: (int(gained), int(lost)) for gained, lost, file in lines}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package alone, with its compiled files; a job, and a space to search."""
    made = tmp_path / "copy"
    for package in ("prism_jax", "inference"):
        shutil.copytree(ROOT / package, made / package)
    (made / "job.yaml").write_text(JOB)
    (made / "space.yaml").write_text(SPACE)
    return made


def run(copy: Path, *lines: str, fresh: tuple[str, ...] = ()) -> list[Answer]:
    """Answers of the copy to command lines, all in one process; the schemas of all its reports are those of their types."""
    environment = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "120"}
    command = [sys.executable, "-c", RUN, json.dumps([line.split() for line in lines])]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["package"]).is_relative_to(copy)
    assert not found["stale"], "renew the patch: `python -m prism_jax.show.reports` changes these schemas"
    return [Answer(*answer) for answer in found["answers"]]


def schema(copy: Path, name: str) -> dict[str, Any]:
    return json.loads((copy / "prism_jax" / "show" / "schemas" / f"{name}-1.json").read_text(encoding="utf-8"))


def test_a_figure_of_a_report_is_its_report_and_its_schema(copy: Path):
    files = apply(PATCHES / "figure_of_a_report.patch", copy)
    assert len(files) <= 2
    told, printed = run(
        copy, f"predict job.yaml --json {' '.join(SMALL)}", f"predict job.yaml --details {' '.join(SMALL)}"
    )
    times = told.report["step_time_s"]
    assert told.report["tail_ratio"] == pytest.approx(times["p99"] / times["p50"])
    assert "tail_ratio" in schema(copy, "prediction")["required"]
    jsonschema.validate(told.report, schema(copy, "prediction"))
    assert f"p99 over p50 {told.report['tail_ratio']:.4g}" in " ".join(printed.out.split())


def test_an_option_is_one_file(copy: Path):
    files = apply(PATCHES / "option_of_a_command.patch", copy)
    assert len(files) == 1
    small = " ".join(SMALL)
    shown, slow, fast, wrong = run(
        copy,
        "predict --help",
        f"predict job.yaml {small} --fail-above 0.001",
        f"predict job.yaml {small} --fail-above 1000",
        "predict job.yaml --fail-above -1",
    )
    assert "--fail-above" in shown.out
    assert "exit with 1 if the p95" in " ".join(shown.out.split()).lower()
    assert (slow.code, fast.code, wrong.code) == (1, 0, 2)
    assert "above the limit of 0.001 s" in slow.err


def test_a_command_is_two_files_and_a_line_of_the_catalogue(copy: Path):
    files = apply(PATCHES / "command.patch", copy)
    assert files.pop(CATALOGUE) == (1, 0)
    assert len(files) <= 2
    help_page, schemas, told, printed, wrong = run(
        copy,
        "--help",
        "show schemas",
        "ceiling job.yaml --json",
        "ceiling job.yaml --set plan.dp=auto",
        "ceiling absent.yaml",
    )
    assert "Tell how fast a job is at its peak." in help_page.out
    assert "prism-jax/ceiling/1" in schemas.out
    jsonschema.validate(told.report, schema(copy, "ceiling"))
    assert told.report["step_s"] > 0.0
    assert "per day" in printed.out
    assert wrong.code == 2


def test_a_field_of_the_plan_is_at_most_six_files(copy: Path):
    files = apply(PATCHES / "field_of_the_plan.patch", copy)
    assert len(files) <= 6
    small = " ".join(SMALL)
    without, compressed, checked, checked_with, refused, misspelt, _, searched = run(
        copy,
        f"predict job.yaml --json {small}",
        f"predict job.yaml --json {small} --set plan.grad_compression=8",
        "check job.yaml --json",
        "check job.yaml --json --set plan.grad_compression=8",
        "check job.yaml --set plan.grad_compression=0",
        "check job.yaml --set plan.grad_compresion=8",
        "init new.yaml",
        "search job.yaml --space space.yaml -o best.yaml --json",
    )
    assert compressed.report["deterministic_s"] < without.report["deterministic_s"]  # less is exchanged
    needed, needed_with = (one.report["memory_bytes_per_gpu"]["gradients"] for one in (checked, checked_with))
    assert needed_with > needed  # what compression loses is kept
    assert refused.code == 2
    assert "plan.grad_compression" in refused.err
    assert "at least 1" in refused.err
    assert "did you mean grad_compression" in misspelt.err
    assert "grad_compression: 1" in (copy / "new.yaml").read_text()  # the writer, and the page of all fields behind it
    assert searched.code == 0, searched.err
    assert "grad_compression: 4" in (copy / "best.yaml").read_text()


def test_a_fit_is_its_file_and_a_line_of_the_table(copy: Path):
    files = apply(PATCHES / "fit.patch", copy)
    assert len(files) <= 2
    seconds = np.exp(np.random.default_rng(0).normal(0.0, 0.05, 200))
    (copy / "steps.csv").write_text("duration_s\n" + "\n".join(f"{own:.6f}" for own in seconds))
    help_page, fitted, quiet, varied = run(
        copy,
        "fit --help",
        "fit toy steps.csv --method map -o toy.npz --json",
        f"predict job.yaml --json {' '.join(SMALL)} --set variability=none",
        f"predict job.yaml --json {' '.join(SMALL)} --set variability=none --fit toy.npz",
    )
    assert "Fit one spread to the steps of one job." in help_page.out
    assert fitted.report["about"]["cv"]["median"] == pytest.approx(0.05, rel=0.2)
    jsonschema.validate(fitted.report, schema(copy, "fit"))
    times, before = varied.report["step_time_s"], quiet.report["step_time_s"]
    assert times["std"] / times["mean"] == pytest.approx(0.05, rel=0.5)
    assert before["std"] < times["std"]


def test_a_head_of_a_log_is_its_file_and_a_line_of_the_table(copy: Path):
    files = apply(PATCHES / "head_of_a_log.patch", copy)
    assert files.pop("prism_jax/launch/log_trainers.py") == (2, 0)  # its import and its entry
    assert len(files) == 1
    (copy / "train.log").write_text(LOG)
    imported, wrong = run(
        copy, "import train.log --device h100-sxm --json -o job.yaml", "import job.yaml --device h100-sxm --json"
    )
    read = {one["path"]: (one["value"], one["origin"]) for one in imported.report["read"]}
    assert read["model.hidden"] == ("4096", "line 4: acme.net.width = 4096")
    assert (read["plan.tp"][0], read["plan.dp"][0], read["cluster.n_devices"][0]) == ("2", "4", "8")
    assert wrong.code == 2


def test_a_patch_that_no_longer_applies_says_so_and_what_to_do(copy: Path):
    (copy / "prism_jax" / "prediction" / "predict.py").write_text("pass\n")
    with pytest.raises(pytest.fail.Exception, match="renew the patch"):
        apply(PATCHES / "option_of_a_command.patch", copy)
