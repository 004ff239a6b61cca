"""Laws of start-up, saves and bandwidth in a choice of cloud."""

from pathlib import Path

import jax
import numpy as np
import pytest

import inference
from prism_jax.cloud.choose_cloud import JOB_START_S, RESTART_S, SmallLaws, _restart_s, small_laws
from prism_jax.cloud.laws import LadderLaw, StartUpLaw
from prism_jax.core.errors import DataError, SpecError
from prism_jax.horizon.checkpoint import checkpoint_bytes
from prism_jax.job.load_job import loaded
from tests.inference import small_laws as tables

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
    with pytest.raises(DataError, match="are both fits of saves"):
        small_laws(job, [name, name], force=True)


def test_a_restart_is_the_start_of_machines_and_of_the_job() -> None:
    assert _restart_s(None, SmallLaws()) == RESTART_S
    assert _restart_s(10.0, SmallLaws()) == 10.0
    assert _restart_s(None, SmallLaws(90.0)) == 90.0 + JOB_START_S
    assert _restart_s(10.0, SmallLaws(90.0)) == 100.0


# --- Laws of step time and start-up: limits, identities, and figures that are refused --------------------------------


ONE = np.ones(1)


def test_a_ladder_is_a_line() -> None:
    law = LadderLaw(0.02 * ONE, 1e-3 * ONE, 0.01 * ONE, (8.0, 128.0))
    assert law.seconds(64.0) - law.seconds(32.0) == pytest.approx(0.032)
    assert law.interval(10.0) == pytest.approx((0.03, 0.03, 0.03))
    with pytest.raises(SpecError, match="batch"):
        law.seconds(0.0)


def test_the_last_of_many_machines_is_late() -> None:
    rng = np.random.default_rng(0)
    parts = np.exp(0.1 * rng.standard_normal((4000, 3))) * np.array([2.0, 30.0, 40.0])
    law = StartUpLaw(parts)
    alone, of_many = law.last_of(1, rng), law.last_of(64, rng)
    assert np.median(alone) == pytest.approx(law.quantile(0.5), rel=0.02)
    assert np.median(of_many) == pytest.approx(law.quantile(0.5 ** (1 / 64)), rel=0.02)
    with pytest.raises(SpecError, match="n_nodes"):
        law.last_of(0, rng)


def test_wrong_figures_are_refused() -> None:
    with pytest.raises(SpecError, match="s_per_sample"):
        LadderLaw(ONE, np.ones(2), ONE, (1.0, 2.0))
    with pytest.raises(SpecError, match="floor_s"):
        LadderLaw(-ONE, ONE, ONE, (1.0, 2.0))
    with pytest.raises(SpecError, match="part_s"):
        StartUpLaw(np.ones((3, 2)))
