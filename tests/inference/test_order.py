"""The order of the rows of a table never changes what is fitted: the data of every model are the same to the last bit."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
from inference.fitting.fit import in_one_order, measured
from prism_jax.fits.models import model_named
from tests.experiments.extra_fits.test_power_fit import limits, sweep
from tests.inference import small_laws as tables
from tests.inference.durations.test_failures import simulated as failures
from tests.inference.durations.test_repairs import log_of
from tests.inference.durations.test_revocation import spot_trace
from tests.inference.kernels.test_kernels import simulated as kernels
from tests.inference.test_overlap import simulated as overlap


def fleet() -> pd.DataFrame:
    """16 GPUs on 4 nodes, runs that nodes share, two kernels, a clock, disturbed runs and rows that are equal."""
    rng = np.random.default_rng(0)
    gpu, run, kernel = (part.ravel() for part in np.mgrid[:16, :6, :2])
    far = np.where(rng.random(gpu.size) < 0.03, 0.2, 0.0)
    log_s = 0.02 * rng.standard_normal(16)[gpu] + 0.01 * rng.standard_normal((4, 6))[gpu // 4, run] + far
    log_s = log_s + 0.002 * rng.standard_normal(gpu.size)
    names = {"gpu": [f"g{i}" for i in gpu], "node": [f"n{i // 4}" for i in gpu], "run": run}
    clock = 1400.0 + 10.0 * rng.standard_normal(gpu.size)
    return pd.DataFrame(
        {**names, "kernel": np.array(["a", "b"])[kernel], "duration_s": np.exp(log_s), "clock_mhz": clock}
    )


def steps() -> pd.DataFrame:
    """24 runs of 60 numbered steps."""
    rng = np.random.default_rng(1)
    run, step = (part.ravel() for part in np.mgrid[:24, :60])
    duration_s = 0.5 * np.exp((0.004 + 0.002 * (run % 8)) * rng.standard_normal(run.size))
    labels = {"run": run, "system": run // 3, "benchmark": run // 12, "n_gpus": 8.0 * 2 ** (run // 3 % 3)}
    return pd.DataFrame({**labels, "step": step, "duration_s": duration_s})


def collectives() -> pd.DataFrame:
    """All-reduces of 16 GPUs, three repeats of every size."""
    rng = np.random.default_rng(2)
    size = np.repeat(2.0 ** np.arange(10, 31), 3)
    seconds = (20e-6 + size / 4e11) * np.exp(0.02 * rng.standard_normal(size.size))
    return pd.DataFrame(
        {"collective": "all_reduce", "n_ranks": 16, "n_nodes": 2, "size_bytes": size, "duration_s": seconds}
    )


def repairs() -> pd.DataFrame:
    """Two systems whose nodes fail alone, and in groups of four."""
    rng = np.random.default_rng(5)
    return pd.concat([log_of(rng, 20, 40, group, f"s{group}") for group in (1, 4)], ignore_index=True)


def revocation() -> pd.DataFrame:
    """Two zones, one of single nodes and one of groups of four."""
    return pd.concat([spot_trace(seed, 60, 4 if seed else 1, f"z{seed}") for seed in (0, 1)], ignore_index=True)


def checkpoints() -> pd.DataFrame:
    """Saves of three sources to two kinds of storage, some in the background."""
    rng = np.random.default_rng(6)
    n = 30
    block_s = np.exp(rng.standard_normal(n))
    total_s = block_s * (1.0 + rng.integers(0, 3, n))
    return pd.DataFrame(
        {
            "source": [f"s{i % 3}" for i in range(n)],
            "checkpoint_bytes": np.exp(rng.uniform(20.0, 27.0, n)),
            "storage": ["NFS", "GPFS on NVMe"] * (n // 2),
            "method": [f"m{i % 4}" for i in range(n)],
            "mode": np.where(total_s > block_s, "asynchronous", "synchronous"),
            "save_block_s": block_s,
            "save_total_s": total_s,
        }
    )


TABLES = {
    "failures": lambda: failures(12, 2.0, 1e-4, np.random.default_rng(4)),
    "repairs": repairs,
    "revocation": revocation,
    "checkpoints": checkpoints,
    "power": lambda: pd.concat(
        [sweep(np.random.default_rng(7)), sweep(np.random.default_rng(8), "b")], ignore_index=True
    ),
    "power limits": limits,
    "ladder": lambda: tables.ladder(np.random.default_rng(9)),
    "totals": lambda: tables.totals(np.random.default_rng(9)),
    "servers": lambda: tables.servers(np.random.default_rng(9)),
    "saves": lambda: tables.saves(np.random.default_rng(9)),
    "links": lambda: tables.links(np.random.default_rng(9)),
    "startup": lambda: tables.starts(np.random.default_rng(9)),
    "fleet": fleet,
    "steps": steps,
    "collectives": collectives,
    "kernels": lambda: kernels(0),
    "overlap": lambda: overlap(0, prob=0.3, by_feature=0.5),
}


def same(one: Any, other: Any) -> bool:
    """Whether two values of a field are equal to the last bit."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return one == other


@pytest.mark.parametrize("name", TABLES)
def test_order_of_rows_does_not_change_the_data_of_a_fit(name: str) -> None:
    frame, model = TABLES[name](), model_named(name.removesuffix(" limits"))
    first, other = (
        model.prepare(measured(table, model).frame) for table in (frame, frame.sample(frac=1.0, random_state=3))
    )
    assert [f.name for f in fields(first) if not same(getattr(first, f.name), getattr(other, f.name))] == []


def test_order_of_files_does_not_change_the_data_of_a_fit(tmp_path: Path) -> None:
    frame, model = fleet(), model_named("fleet")
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    frame[:60].to_csv(files[0], index=False)
    frame[60:].to_csv(files[1], index=False)
    first, other = (model.prepare(measured(paths, model).frame) for paths in (files, files[::-1]))
    assert [f.name for f in fields(first) if not same(getattr(first, f.name), getattr(other, f.name))] == []


def test_steps_without_numbers_keep_the_order_of_the_file() -> None:
    """Their order is the order of time."""
    frame = steps().drop(columns="step")
    kept = measured(frame, "steps").frame
    np.testing.assert_array_equal(kept["duration_s"].to_numpy(), frame["duration_s"].to_numpy())


def test_blank_values_and_many_texts_are_ordered_too() -> None:
    """More combinations of texts than a 62-bit number holds."""
    rng = np.random.default_rng(4)
    n = 3000
    texts = {f"t{i}": [f"v{v}" for v in rng.permutation(n)] for i in range(8)}
    frame = pd.DataFrame({**texts, "x": rng.random(n)})
    frame.loc[::7, "t0"] = np.nan
    frame.loc[::5, "x"] = np.nan
    shuffled = frame.sample(frac=1.0, random_state=5)
    pd.testing.assert_frame_equal(in_one_order(frame), in_one_order(shuffled))
