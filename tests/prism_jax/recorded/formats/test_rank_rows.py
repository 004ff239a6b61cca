"""Tables of one row per step and rank: a step is its slowest rank, in any order of rows, in every command that reads steps."""

import json
from pathlib import Path

import numpy as np
import pytest

from inference.data.read import read_measurements
from inference.steps.model import COLUMNS
from inference.steps.runs import read_runs
from prism_jax import describe_trace, watch_steps
from prism_jax.core.errors import DataError
from prism_jax.core.report import Report
from prism_jax.trace.rank_times import in_ranges, natural_order
from tests.support.training_logs import read_log

N_STEP, N_RANK = 40, 8
SPELLINGS = {
    "rank": ("step,rank,step_time_s", lambda r: f"{r}"),
    "global_rank": ("iteration,global_rank,step_time_s", lambda r: f"{r}"),
    "node and index": ("step,host,local_rank,step_time_s", lambda r: f"n{r // 4},{r % 4}"),
    "hostname and GPU": ("global_step,hostname,gpu_id,iteration_time_s", lambda r: f"node{r // 2},{r % 2}"),
    "worker": ("step,worker,duration_s", lambda r: f"w{r}"),
}


def times(seed: int = 0) -> np.ndarray:
    """[step, rank] seconds."""
    return 2.0 + 0.05 * np.random.default_rng(seed).random((N_STEP, N_RANK))


def text_of(header: str, rows: list[str], seed: int | None = None) -> str:
    """A table of these rows, shuffled if there is a seed."""
    order = np.arange(len(rows)) if seed is None else np.random.default_rng(seed).permutation(len(rows))
    return "\n".join([header, *(rows[i] for i in order)]) + "\n"


def table(seconds: np.ndarray, spelling: str = "rank", seed: int | None = None, first: int = 1) -> str:
    header, who = SPELLINGS[spelling]
    return text_of(header, [f"{first + s},{who(r)},{t:.6f}" for (s, r), t in np.ndenumerate(seconds)], seed)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("seed", [None, 0])
def test_a_step_is_its_slowest_rank(tmp_path: Path, spelling: str, seed: int | None):
    log = read_log(tmp_path, table(times(), spelling, seed))
    assert log.step.tolist() == list(range(1, N_STEP + 1))
    np.testing.assert_allclose(log.step_s, times().max(axis=1), atol=1e-6)
    assert log.ranks is not None
    assert len(log.ranks.names) == N_RANK
    assert any("8 ranks: a step is its slowest rank" in note for note in log.notes)


def test_json_lines_of_ranks_are_the_same(tmp_path: Path):
    lines = [f'{{"step": {s + 1}, "rank": {r}, "step_time_s": {t:.6f}}}' for (s, r), t in np.ndenumerate(times())]
    log = read_log(tmp_path, "\n".join(lines), "steps.jsonl")
    np.testing.assert_allclose(log.step_s, times().max(axis=1), atol=1e-6)


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_one_column_per_rank(tmp_path: Path, unit: float):
    name = {1.0: "rank{}_s", 1e-3: "rank{}_step_time_ms"}[unit]
    header = ",".join(["step", *(name.format(r) for r in range(N_RANK))])
    rows = [f"{s + 1}," + ",".join(f"{t / unit:.6f}" for t in times()[s]) for s in range(N_STEP)]
    log = read_log(tmp_path, "\n".join([header, *rows]) + "\n")
    np.testing.assert_allclose(log.step_s, times().max(axis=1), atol=1e-6)


def test_equal_numbers_of_rows_per_step_are_ranks_without_names(tmp_path: Path):
    rows = [f"{s + 1},{t:.6f}" for s in range(N_STEP) for t in times()[s]]
    text = "step,step_time_s\n" + "\n".join(rows) + "\n"
    log = read_log(tmp_path, text)
    np.testing.assert_allclose(log.step_s, times().max(axis=1), atol=1e-6)
    assert any("8 rows of every step, taken for ranks" in note for note in log.notes)
    assert log.ranks is None


def test_steps_that_ran_twice_are_in_it_twice(tmp_path: Path):
    first, again = times()[:20], times(1)[9:]
    log = read_log(tmp_path, table(first) + table(again, first=10).partition("\n")[2])
    assert len(log.step_s) == 20 + len(again)
    assert sorted(set(log.step.tolist())) == list(range(1, 41))


def test_ranks_without_steps_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="rows of 3 ranks, but no column of step numbers"):
        read_log(tmp_path, "rank,step_time_s\n0,1.0\n1,1.1\n2,1.2\n")


def test_missing_rows_are_counted(tmp_path: Path):
    rows = table(times()).splitlines()
    log = read_log(tmp_path, "\n".join(rows[:-3]) + "\n")
    assert any("3 of 320 rows are missing" in note for note in log.notes)


def as_answer(report: Report) -> object:
    found = json.loads(report.to_json())
    return {name: value for name, value in found.items() if name not in ("source", "name", "record", "run", "inputs")}


WITHOUT_RANKS = ("step,step_time_s", "step,step_time_s,data_time_s", "_step,_timestamp,train/step_time_s")


def table_without_ranks(header: str, seed: int | None) -> str:
    seconds = times()[:, 0]
    columns = {"data_time_s": 0.01 * seconds, "_timestamp": 1.7e9 + seconds.cumsum()}
    values = [columns.get(name, seconds) for name in header.split(",")[1:]]
    return text_of(header, [",".join([f"{s + 1}", *(f"{v[s]:.6f}" for v in values)]) for s in range(N_STEP)], seed)


@pytest.mark.parametrize("which", [*SPELLINGS, *WITHOUT_RANKS])
def test_shuffled_rows_give_the_same_answer(tmp_path: Path, which: str):
    path, answers = tmp_path / "steps.csv", []
    for seed in (None, 7):
        path.write_text(table(times(), which, seed) if which in SPELLINGS else table_without_ranks(which, seed))
        runs = read_runs(read_measurements([path], COLUMNS).frame).runs
        told = [(run.relative.tolist(), run.total_s, run.step_s) for run in runs]
        answers.append((as_answer(watch_steps(path)), as_answer(describe_trace(path)), told))
    assert answers[0] == answers[1]


def test_shuffled_rows_of_several_runs_give_the_same_fit(tmp_path: Path):
    path, found = tmp_path / "runs.csv", []
    rows = [f"run{u},{s + 1},{r},{t:.6f}" for u in range(3) for (s, r), t in np.ndenumerate(times(u))]
    for seed in (None, 0, 1, 2):
        path.write_text(text_of("run,step,rank,duration_s", rows, seed))
        runs = sorted(read_runs(read_measurements([path], COLUMNS).frame).runs, key=lambda run: run.name)
        found.append([(run.name, run.relative.tolist(), run.total_s) for run in runs])
    assert found[1:] == 3 * found[:1]
    assert found[0][0][2] == pytest.approx(times(0)[3:].max(axis=1).sum(), rel=1e-6)


def test_names_in_natural_order_and_ranges():
    assert natural_order(["n10:1", "n9:0", "n10:0"]) == ["n9:0", "n10:0", "n10:1"]
    assert in_ranges(["12", "13", "15", "3"], [str(i) for i in range(20)]) == "ranks 3, 12-13, 15"
    assert in_ranges(["7"], [str(i) for i in range(20)]) == "rank 7"
