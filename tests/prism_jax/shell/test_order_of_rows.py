"""The order of the rows of a table changes no answer: the same jobs, runs, nodes, layouts and ops, shuffled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import prism_jax as pj
from prism_jax.prediction.predict import explain_step
from tests.support.readme_inputs import CHANGES, write_inputs

TOLERANCE = 1e-9
OWN = ("record", "elapsed_s", "id", "inputs", "source")  # say which file or line it was, or how long it took


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every number and text of a report, by its place; rows by what they say of themselves."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in OWN:
                yield from leaves(inner, (*path, name))
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
        for number, inner in enumerate(sorted(value, key=rounded)):
            yield from leaves(inner, (*path, number))
    else:
        yield path, value


def rounded(row: dict[str, Any]) -> str:
    """A row as text, without what its place decides."""
    kept = {name: value for name, value in row.items() if name not in OWN}
    return str({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in kept.items()})


def assert_same(one: Any, other: Any) -> None:
    """Same places, same texts, numbers to 1e-9."""
    first, second = dict(leaves(one.to_dict())), dict(leaves(other.to_dict()))
    assert first.keys() == second.keys()
    for place, value in first.items():
        assert value == (pytest.approx(second[place], rel=TOLERANCE) if isinstance(value, float) else second[place]), (
            place
        )


def shuffled(frame: pd.DataFrame, folder: Path, name: str) -> tuple[Path, Path]:
    """A table and the same in another order, under the same name in two folders."""
    files = folder / "a" / name, folder / "b" / name
    for file, rows in zip(files, (frame, frame.sample(frac=1.0, random_state=1)), strict=True):
        file.parent.mkdir()
        write_inputs(file.parent)
        rows.to_csv(file, index=False)
    return files


def runs() -> pd.DataFrame:
    """Twelve runs of two devices, without names of their own."""
    first = pd.DataFrame({"job": "my_job.yaml", "set": CHANGES})
    first = first.assign(measured_step_time_s=[0.02, 0.02, 0.04, 0.08, 0.04, 0.03])
    other = first.assign(set=first["set"] + " cluster=dgx-h100", measured_step_time_s=first["measured_step_time_s"] / 2)
    return pd.concat([first, other], ignore_index=True)


def test_validate_steps(tmp_path: Path) -> None:
    assert_same(*(pj.validate_steps(file) for file in shuffled(runs(), tmp_path, "runs.csv")))


def test_calibrate(tmp_path: Path) -> None:
    assert_same(*(pj.calibrate_site(file) for file in shuffled(runs().head(4), tmp_path, "runs.csv")))


def test_predict_with_slowdowns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"gpu": range(8), "slowdown": 1.0 + 0.02 * rng.random(8)})
    files = shuffled(table, tmp_path, "slow.csv")
    found = [explain_step(file.parent / "my_job.yaml", slowdowns=file, explained=False) for file in files]
    assert_same(*found)


def test_place_nodes(tmp_path: Path) -> None:
    """Of GPUs by number; where hosts are named, their order is that of the nodes as given."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"gpu": range(32), "slowdown": 1.0 + 0.05 * rng.random(32)})
    files = shuffled(table, tmp_path, "nodes.csv")
    job = pj.load_job("llama2_7b_fsdp_64", ["cluster.n_devices=32", "plan.dp=32", "plan.global_batch=64"])
    assert_same(*(pj.place_nodes(job, file) for file in files))


def test_validate_memory(tmp_path: Path) -> None:
    names = ("fits", "job", "model.name", "model.n_layers", "plan.micro_batch", "plan.global_batch")
    rows = [
        ("true" if i % 3 else "false", "my_job.yaml", f"m{i}", 2 + i, 1 + i % 4, 8 * (1 + i % 4)) for i in range(12)
    ]
    files = shuffled(pd.DataFrame(rows, columns=names), tmp_path, "memory.csv")
    assert_same(*(pj.validate_memory(file) for file in files))


def test_schedule(tmp_path: Path) -> None:
    """Jobs that were submitted in the same second, too."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"submit_s": np.sort(rng.integers(0, 600, 60)), "gpus": 2 ** rng.integers(0, 4, 60)})
    table["duration_s"] = rng.integers(60, 3600, 60)
    files = shuffled(table, tmp_path, "queue.csv")
    assert_same(*(pj.schedule_trace(file, n_seeds=2) for file in files))


def test_trace_info(tmp_path: Path) -> None:
    ops = pd.DataFrame(
        [
            (step, dp, kind, micro_batch, 3.0 * step + 0.5 * (2 * micro_batch + late) + 0.01 * dp, 0.4)
            for step in range(12)
            for dp in range(2)
            for micro_batch in range(3)
            for late, kind in enumerate(("forward-compute", "backward-compute"))
        ],
        columns=["step", "dp", "op_type", "micro_batch", "start_s", "duration_s"],
    )
    ops["duration_s"] += 0.05 * np.random.default_rng(0).random(len(ops))
    assert_same(*(pj.describe_trace(file) for file in shuffled(ops, tmp_path, "ops.csv")))
