"""Whatever becomes of a file that `--resume` takes or an unfinished fit left, it is refused by name, or the command ends well.

Stored fits and calibrations: `tests/inference/fitting/test_fuzzed_files.py`.
"""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_jax.core.errors import PrismError
from prism_jax.job.job import Job
from prism_jax.shell.app import main
from prism_jax.study.figures import JobFigures
from tests.inference.engine.test_engine import Interrupted, short, stop_after
from tests.support.files.archives import changed, parts
from tests.support.files.mutations import mutated
from tests.support.job_texts import JOB

N_FAST, N_SLOW = 30, 2_000
SPACE = "pp: [4]\ntp: [2]\ncp: [1]\nmicro_batch: [1]\nvirtual_stages: [1]\nschedule: [1f1b]\nrecompute: [none]\n"
FEW = ["--samples", "64"]
COMMANDS = {
    "sweep": ["--set", "plan.micro_batch=1,2,3", *FEW],
    "scale": ["--gpus", "64,128", *FEW],
    "search": ["--space", "space.yaml", "--top", "2"],
}
LESS = {"sweep": 1.0, "scale": 1.0, "search": 0.5, "fit": 0.3}  # of the files: those that are taken take their time


def _figures(job: Job, _asked: object) -> JobFigures:
    """Of no prediction: what is read counts here."""
    return replace(JobFigures(**{item.name: 1.0 for item in fields(JobFigures)}), n_devices=float(job.plan.n_devices))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prism_jax.study.run_grid.figures_of", _figures)
    Path("job.yaml").write_text(JOB)
    Path("space.yaml").write_text(SPACE)
    return tmp_path


def _command(name: str) -> list[str]:
    return [name, "job.yaml", *COMMANDS[name], "--resume", "kept.npz", "-q"]


def _write(kind: str) -> None:
    if kind == "fit":
        with pytest.raises(Interrupted):
            short(resume=Path("kept.npz"), progress=stop_after(0.6))
    else:
        assert main(_command(kind)) == 0
    Path("kept.npz").rename("whole.npz")


def _use(kind: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is refused, in words; empty where nothing is."""
    if kind == "fit":
        try:
            drawn = short(resume=Path("kept.npz"))
        except PrismError as error:
            return str(error)
        assert all(np.isfinite(values).all() for values in drawn.draws.values())
        return ""
    code = main(_command(kind))
    told = capsys.readouterr()
    assert code in (0, 2), told.err
    assert not re.search(r"\bnan\b|\binf\b", told.out)
    return told.err if code else ""


def _all_end_well(kind: str, seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    _write(kind)
    n_refused = 0
    for seed in seeds:
        mutated(Path("whole.npz"), Path("kept.npz"), seed)
        with np.errstate(all="ignore"):
            told = _use(kind, capsys)
        n_refused += bool(told)
        assert not told or "kept.npz: " in told, (seed, told)
        assert told.count("kept.npz") <= 1, (seed, told)
    assert n_refused > len(seeds) / 2


@pytest.mark.parametrize("kind", LESS)
def test_damaged_files(kind: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _all_end_well(kind, range(round(N_FAST * LESS[kind])), capsys)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LESS)
def test_many_damaged_files(kind: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _all_end_well(kind, range(N_FAST, N_FAST + round(N_SLOW * LESS[kind])), capsys)


ROWS = "tasks/rows"
WRONG: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "nothing known": lambda arrays: arrays[ROWS].fill(np.nan),
    "negative times": lambda arrays: arrays.update({ROWS: -arrays[ROWS]}),
    "200 digits": lambda arrays: arrays[ROWS].fill(1e200),
    "without end": lambda arrays: arrays[ROWS].fill(np.inf),
    "other sizes": lambda arrays: arrays[ROWS].__setitem__((slice(None), _column("n_devices")), 8.0),
    "a tail below the median": lambda arrays: arrays[ROWS].__setitem__((0, _column("p95_s")), 0.5),
    "half a fit into memory": lambda arrays: arrays[ROWS].__setitem__((0, _column("fits")), 0.5),
    "figures of what is not done": lambda arrays: arrays["tasks/jobs"].fill(""),
    "one task twice": lambda arrays: arrays["tasks/positions"].fill(0),
    "a task too few": lambda arrays: arrays.update({"tasks/positions": arrays["tasks/positions"][1:]}),
    "a reason beside figures": lambda arrays: arrays["tasks/problems"].fill("x"),
}


def _column(name: str) -> int:
    return [item.name for item in fields(JobFigures)].index(name)


@pytest.mark.parametrize("wrong", WRONG)
def test_figures_that_no_study_has_are_refused(wrong: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_command("sweep")) == 0

    def edit(_: Any, arrays: dict[str, Any]) -> None:
        WRONG[wrong](arrays)

    changed(Path("kept.npz"), edit)
    capsys.readouterr()
    assert main(_command("sweep")) == 2
    told = capsys.readouterr().err
    assert "error: kept.npz: not the file of a study: " in told
    assert told.count("or remove it to start over") == 1


def test_rows_of_impossible_jobs_are_made_anew(here: Path) -> None:
    """A micro-batch of three does not divide the batch: nothing of it is kept."""
    assert main(_command("sweep")) == 0
    _, arrays = parts(Path("kept.npz"))
    assert arrays["tasks/positions"].tolist() == [0, 1]
