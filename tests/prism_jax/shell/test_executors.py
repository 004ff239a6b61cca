"""Commands that share their work: the answer of two processes is that of one, to the last bit."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import inference
import prism_jax as pj
from inference.cost_model.calibrate import step_folds
from inference.fitting.holdout import holdout
from prism_jax.core.content import content_hash
from prism_jax.core.executor import Workers
from prism_jax.core.processes import processes
from tests.inference.cost_model.test_folds import NOISY
from tests.inference.engine.toy import Toy, readings


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with processes(2) as two:
        yield two


def grid(_: Path, workers: Workers) -> Any:
    return pj.sweep_jobs("llama2_7b_fsdp_64", ["plan.micro_batch=1,2"], n_samples=64, workers=workers).rows


def sizes(_: Path, workers: Workers) -> Any:
    return pj.scale_job("llama2_7b_fsdp_64", "64,128", n_samples=64, workers=workers).rows


def queue(folder: Path, workers: Workers) -> Any:
    rng, file = np.random.default_rng(0), folder / "queue.csv"
    table = pd.DataFrame({"submit_s": np.sort(rng.integers(0, 600, 60)), "gpus": 2 ** rng.integers(0, 4, 60)})
    table.assign(duration_s=rng.integers(60, 3600, 60)).to_csv(file, index=False)
    return pj.schedule_trace(file, n_seeds=3, cvs=[0.01, 0.05], workers=workers).rows


def cloud(_: Path, workers: Workers) -> Any:
    found = pj.choose_cloud(
        "llama2_7b_fsdp_64", n_steps=20_000, deadline_s=20 * 86_400.0, n_worlds=200, most_gpus=16, workers=workers
    )
    return found.best, found.front, found.simulated


def site(folder: Path, workers: Workers) -> Any:
    file = folder / "runs.csv"
    texts = ["plan.micro_batch=1", "plan.micro_batch=2", "plan.seq_len=2048"]
    pd.DataFrame({"job": "llama2_7b_fsdp_64", "set": texts, "step_time_s": [3.1, 3.0, 1.4]}).to_csv(file, index=False)
    found = pj.calibrate_site(file, workers=workers)
    return found.curve, found.error, found.runs


def left_out_groups(_: Path, workers: Workers) -> Any:
    with jax.numpy_dtype_promotion("standard"):
        return content_hash(step_folds(NOISY, "source", key=jax.random.key(0), workers=workers))


def left_out_gpus(_: Path, workers: Workers) -> Any:
    measured = inference.measured(readings(24).assign(group=["a", "b", "c"] * 8), Toy())
    return holdout(measured, model=Toy(), column="group", key=jax.random.key(0), method="map", workers=workers).scores


@pytest.mark.parametrize("work", [grid, sizes, queue, cloud, site, left_out_groups, left_out_gpus])
def test_two_processes_give_the_answer_of_one(
    work: Callable[[Path, Workers], Any], pool: Executor, tmp_path: Path
) -> None:
    assert repr(work(tmp_path, Workers(executor=pool))) == repr(work(tmp_path, Workers()))
