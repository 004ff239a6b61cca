"""Shards of a study: together they are the whole, each task once; and what schedulers state of them."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_jax.core.errors import DataError
from prism_jax.study.journal import COLUMNS, StudyJournal, StudyShard, shard_of
from prism_jax.study.run_grid import StudyRequest, run_study
from prism_jax.study.sweep_jobs import sweep_jobs
from tests.prism_jax.study.test_run_grid import ASKED, job_of
from tests.support.files.archives import changed

ROOT = Path(__file__).parents[3]
SCHEDULERS = ROOT / "examples" / "schedulers"
TASKS = [1, 2, 3, 4, 5, 8]
ARRAY = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_COUNT": "9"}


def test_shards_of_a_folder_are_the_whole_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, folder = run_study(TASKS, job_of, ASKED), tmp_path / "results"
    parts = [run_study(TASKS, job_of, ASKED, resume=folder, shard=StudyShard(number, 4)) for number in range(4)]
    assert [len(part) for part in parts] == [2, 2, 1, 1]
    assert sorted(repr(row) for part in parts for row in part) == sorted(map(repr, whole))
    assert sorted(file.name for file in folder.iterdir()) == [f"shard-{number}-of-4.npz" for number in range(4)]
    monkeypatch.setattr("prism_jax.study.run_grid.predict", None)  # nothing is predicted again
    assert repr(run_study(TASKS, job_of, ASKED, resume=folder)) == repr(whole)
    assert not (folder / "whole.npz").exists()


def test_lost_shards_are_done_by_whoever_comes_next(tmp_path: Path) -> None:
    whole = run_study(TASKS, job_of, ASKED)
    run_study(TASKS, job_of, ASKED, resume=tmp_path, shard=StudyShard(0, 2))
    assert repr(run_study(TASKS, job_of, ASKED, resume=tmp_path)) == repr(whole)
    journal = StudyJournal(tmp_path / "whole.npz", _identity(tmp_path), len(TASKS))
    assert [index for index, job in enumerate(journal.jobs) if job] == [1, 3, 5]


def _identity(folder: Path) -> str:
    from prism_jax.core.archive import opened

    with opened(folder / "whole.npz", "study", "") as archive:
        return archive.about["identity"]


def test_files_that_contradict_each_other_or_are_of_another_study_are_refused(tmp_path: Path) -> None:
    run_study(TASKS, job_of, ASKED, resume=tmp_path, shard=StudyShard(0, 2))
    with pytest.raises(DataError, match="another study"):
        run_study(TASKS, job_of, StudyRequest(n_samples=128), resume=tmp_path, shard=StudyShard(1, 2))
    shutil.copy(tmp_path / "shard-0-of-2.npz", tmp_path / "shard-0-of-3.npz")  # another cut: of the same figures

    def edit(_: Any, arrays: dict[str, Any]) -> None:
        arrays["tasks/rows"][:, COLUMNS.index("tokens_per_s")] *= 1.0 + 1e-12

    run_study(TASKS, job_of, ASKED, resume=tmp_path, shard=StudyShard(1, 2))
    changed(tmp_path / "shard-0-of-3.npz", edit)
    with pytest.raises(DataError, match="other figures of the same task"):
        run_study(TASKS, job_of, ASKED, resume=tmp_path)


@pytest.mark.parametrize(
    ("text", "variables", "shard"),
    [
        ("3/64", {}, StudyShard(3, 64)),
        ("auto/64", {"JOB_COMPLETION_INDEX": "5"}, StudyShard(5, 64)),
        ("auto", ARRAY, StudyShard(3, 9)),
        ("auto", {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, StudyShard(1, 2)),
        ("auto", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "SLURM_PROCID": "0"}, StudyShard(1, 3)),
    ],
)
def test_a_shard_is_stated_or_taken_from_the_scheduler(text: str, variables: dict[str, str], shard: StudyShard) -> None:
    assert shard_of(text, variables) == shard


@pytest.mark.parametrize(
    ("text", "variables", "why"),
    [
        ("64/64", {}, "is none. Give the index and the number of shards"),
        ("1", {}, "is none"),
        ("-1/4", {}, "is none"),
        ("auto", {}, "no scheduler states an index here"),
        ("auto", {"JOB_COMPLETION_INDEX": "5"}, "auto/64"),
        ("auto/4", {"JOB_COMPLETION_INDEX": "5"}, "is none"),
    ],
)
def test_shards_that_are_none_are_refused(text: str, variables: dict[str, str], why: str) -> None:
    with pytest.raises(DataError, match=why):
        shard_of(text, variables)


def test_a_shard_needs_a_folder(tmp_path: Path) -> None:
    grid = ["plan.micro_batch=1,2"]
    with pytest.raises(DataError, match="Give --resume FOLDER"):
        sweep_jobs("llama2_7b_fsdp_64", grid, shard="0/2")
    with pytest.raises(DataError, match="it has none of the 2 jobs"):
        sweep_jobs("llama2_7b_fsdp_64", grid, shard="2/3", resume=tmp_path, n_samples=64)


STAND_IN = """#!/bin/sh
# srun or an array of Slurm, on one machine: the command once per task, with the variables that Slurm sets
set -eu
for task in 4 5 6; do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_COUNT=3 "$@" &
    pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid"; done
"""


def test_the_recipe_for_an_array_of_slurm_makes_the_table_of_one_process(tmp_path: Path) -> None:
    (tmp_path / "array").write_text(STAND_IN)
    (tmp_path / "prism-jax").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m prism_jax "$@" --samples 64\n')
    for file in ("array", "prism-jax"):
        (tmp_path / file).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    results = {"RESULTS": str(tmp_path / "results"), "JOB": "gpt3_175b_1024"}
    own = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | results
    recipe = SCHEDULERS / "slurm_sweep.sh"
    subprocess.run([tmp_path / "array", recipe], env=own, check=True, capture_output=True, cwd=tmp_path)
    assert len(list((tmp_path / "results").iterdir())) == 3
    command = f"prism-jax sweep {results['JOB']} --set plan.tp=4,8,16 --set plan.micro_batch=1,2,4 --json".split()
    rows = []
    for more in (["--resume", str(tmp_path / "results")], []):  # in processes of their own, as users start them
        run = subprocess.run([*command, *more], env=own, check=True, capture_output=True, text=True, cwd=tmp_path)
        rows.append(json.loads(run.stdout)["rows"])
    assert not (tmp_path / "results" / "whole.npz").exists()
    assert rows[0] == rows[1]


def test_the_manifest_for_kubernetes_says_what_the_command_reads() -> None:
    manifest = yaml.safe_load((SCHEDULERS / "kubernetes_sweep.yaml").read_text())
    spec = manifest["spec"]
    command = spec["template"]["spec"]["containers"][0]["command"]
    assert spec["completionMode"] == "Indexed"
    shard = shard_of(command[command.index("--shard") + 1], {"JOB_COMPLETION_INDEX": "63"})
    assert shard == StudyShard(63, spec["completions"])
    if find_spec("kubernetes_validate"):
        import kubernetes_validate  # type: ignore[import-not-found]

        kubernetes_validate.validate(manifest, "1.33", strict=True)
