# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Fits of start-up and saves reach a choice of cloud: seconds of a restart, and what a checkpoint costs."""

from pathlib import Path

import jax
import numpy as np
import pytest

import inference
from prism_jax.cloud.choose_cloud import JOB_START_S, RESTART_S, SmallLaws, _restart_s, small_laws
from prism_jax.core.errors import DataError
from prism_jax.horizon.checkpoint import checkpoint_bytes
from prism_jax.job.load_job import loaded
from tests.inference.models.small_laws import tables

JOB = """
model: {kind: ladder, name: mine, floor_s: 0.02, s_per_sample: 0.001, measured_on: v100, n_parameters: 5000000, most_samples: 128}
cluster: {device: v100, n_devices: 8}
plan: {micro_batch: 64, global_batch: 512, dp: 8, dtype: fp16}
variability: none
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("fits")
    made = {"startup": tables.starts(np.random.default_rng(0)), "saves": tables.saves(np.random.default_rng(0))}
    for name, frame in made.items():
        inference.fit(frame, model=name, method="map", key=jax.random.key(0)).save(folder / f"{name}.npz")
    (folder / "job.yaml").write_text(JOB)
    return {name: folder / f"{name}.npz" for name in made} | {"job": folder / "job.yaml"}


def test_fits_say_how_long_a_restart_and_a_checkpoint_take(files: dict[str, Path]) -> None:
    """Starts of 72 and 84 s by tier, of which the slower counts; 70 MB at 50 MB/s after 3 s and the index."""
    job = loaded(files["job"])
    found = small_laws(job, [str(files["startup"]), str(files["saves"])], force=True)
    assert found.start_up_s is not None
    assert 84.0 < found.start_up_s < 120.0
    assert found.checkpoint is not None
    assert checkpoint_bytes(job) == 70e6
    assert found.checkpoint.blocking_s == pytest.approx(3.0 + 70e6 / 50e6 + 0.45, rel=0.1)
    assert len(found.notes) == 2


def test_one_fit_of_a_kind(files: dict[str, Path]) -> None:
    job, name = loaded(files["job"]), str(files["saves"])
    with pytest.raises(DataError, match="both speak of saves"):
        small_laws(job, [name, name], force=True)


def test_a_restart_is_the_start_of_machines_and_of_the_job() -> None:
    assert _restart_s(None, SmallLaws()) == RESTART_S
    assert _restart_s(10.0, SmallLaws()) == 10.0
    assert _restart_s(None, SmallLaws(90.0)) == 90.0 + JOB_START_S
    assert _restart_s(10.0, SmallLaws(90.0)) == 100.0
