"""The checkpoints model: its density is the Gaussian one, texts are understood, and laws that were put in are found again."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer.util import log_density
from scipy.stats import lognorm, multivariate_normal

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
import inference
from experiments.checkpoints_fit import features
from experiments.checkpoints_fit.data import BYTES_PER_PARAMETER, from_frame, observations
from experiments.checkpoints_fit.model import SPREADS, Checkpoints
from experiments.checkpoints_fit.predict import seconds
from experiments.checkpoints_fit.storage import first_and_last, stated_bytes_per_s, storage_class
from prism_jax.core.errors import DataError

MODEL = Checkpoints()


def table(rng: np.random.Generator, n_source: int = 12, n_each: int = 8, noise: float = 0.1) -> pd.DataFrame:
    """Saves at half the bandwidth of a network file system, with sources that differ by 20%."""
    source = np.repeat(np.arange(n_source), n_each)
    size = np.exp(rng.uniform(np.log(1e9), np.log(1e12), len(source)))
    log_s = (
        np.log(size / 0.1e9) + 0.2 * rng.standard_normal(n_source)[source] + noise * rng.standard_normal(len(source))
    )
    return pd.DataFrame(
        {"source": [f"s{i}" for i in source], "ckpt_GB": size / 1e9, "storage": "NFS", "save_total_s": np.exp(log_s)}
    ).assign(method=["x", "y"] * (len(source) // 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPFS on NVMe (Jean Zay)", "parallel file system"),
        ("NAS about 100 MB/s", "network file system"),
        ("S3 mount, cached", "object store"),
        ("local NVMe", "local disk"),
        ("host memory", "memory"),
        ("peer to peer, one host", "peer"),
        ("", "not stated"),
        ("paradise", "not stated"),  # "ram" and "disk" stand in words, not for themselves
    ],
)
def test_texts_name_classes(text: str, expected: str) -> None:
    assert storage_class(text) == expected


def test_texts_state_bandwidths_and_two_places() -> None:
    assert stated_bytes_per_s("NAS about 100 MB/s") == 100e6
    assert stated_bytes_per_s("2 GiB/s") == 2.0 * 1024**3
    assert stated_bytes_per_s("NAS") is None
    assert first_and_last("host memory, then NAS", is_async=True) == ("host memory", "NAS")


def test_a_synchronous_save_is_one_observation_and_an_asynchronous_one_two() -> None:
    rows = pd.DataFrame(
        {
            "source": ["a", "a", "a"],
            "params_B": [1.0, 1.0, 1.0],
            "mode": ["synchronous", "asynchronous", "asynchronous"],
            "storage": "host memory, then NAS",
            "save_block_s": [10.0, 1.0, 2.0],
            "save_total_s": [10.0, 12.0, np.nan],
            "load_s": [np.nan, np.nan, 7.0],
        }
    )
    found, measured = observations(inference.measured(rows, "checkpoints").frame)
    place = {"save": "network file system", "block": "memory", "load": "network file system"}
    assert sorted(zip([one.operation for one in found], measured.tolist(), strict=True)) == [
        ("block", 1.0), ("block", 2.0), ("load", 7.0), ("save", 10.0), ("save", 12.0),
    ]  # fmt: skip
    assert all(one.storage == place[one.operation] for one in found)
    assert found[0].log_bytes == pytest.approx(np.log(1e9 * BYTES_PER_PARAMETER))
    assert found[0].is_assumed


def test_the_density_is_that_of_a_gaussian_with_all_effects_in_its_covariance() -> None:
    frame = inference.measured(table(np.random.default_rng(0), 3, 4), "checkpoints").frame
    data = from_frame(frame)
    site = {"source_sd": 0.5, "method_sd": 0.3, "operation_sd": 0.25, "noise": 0.2}
    with jax.enable_x64(True):
        found, _ = log_density(MODEL.program, (data,), {}, {name: np.float64(value) for name, value in site.items()})
    rows, measured = observations(frame)
    design = features.design_of(rows)
    z = design.matrix(rows)
    spread = data.prior_sd * np.array([1.0, 0.5, 0.3, 0.25])[data.level]
    covariance = (z * spread**2) @ z.T + 0.04 * np.eye(len(rows))
    mean = z @ design.prior_mean + design.offset(rows)
    priors = sum(lognorm.logpdf(site[name], np.log(factor), scale=median) for name, (median, factor) in SPREADS.items())
    expected = multivariate_normal(mean, cov=covariance).logpdf(np.log(measured))  # pyright: ignore[reportArgumentType]
    expected += 0.5 * len(rows) * np.log(2.0 * np.pi)
    assert float(found) == pytest.approx(expected + priors, rel=1e-9)


def test_what_was_put_in_is_found_again() -> None:
    """Each within 3.9 standard deviations of its posterior: false alarm 1e-4."""
    fitted = inference.fit(table(np.random.default_rng(2)), model="checkpoints", method="map", key=jax.random.key(0))
    assert fitted.verdict.ok, fitted.verdict.sentence
    noise = np.log(fitted.draws["noise"])
    assert abs(noise.mean() - np.log(0.1)) < 3.9 * noise.std()
    drawn = np.log(
        seconds(fitted.data, fitted.draws, operation="save", n_bytes=50e9, storage="NFS", key=jax.random.key(1))
    )
    # A new source and method: 0.2 and the spread of methods, of which two say little.
    assert abs(np.median(drawn) - np.log(500.0)) < 0.5
    size = fitted.draws["effect"][:, fitted.data.names.index("size")]
    assert abs(size.mean()) < 3.9 * size.std()


def test_what_training_waits_for_of_a_save_in_the_background_is_a_copy_in_memory() -> None:
    assert first_and_last("shared file system", is_async=True) == ("host memory", "shared file system")
    assert first_and_last("peer, then NAS", is_async=True) == ("peer", "NAS")
    assert first_and_last("NAS", is_async=False) == ("NAS", "NAS")


def test_one_process_adds_its_own_seconds_to_those_of_the_storage() -> None:
    row = features.Observation.of("save", 1e9, np.nan, "NFS", "torch.save", "", "a")
    assert features.design_of([row]).offset([row])[0] == pytest.approx(np.log(5.0 + 1.0))
    fast = features.Observation.of("save", 1e9, np.nan, "tmpfs", "torch.save", "", "a")
    assert features.design_of([fast]).offset([fast])[0] == pytest.approx(np.log(0.1 + 1.0))


def test_a_stated_bandwidth_is_taken_for_what_it_is() -> None:
    row = features.Observation.of("load", 1e9, np.nan, "NAS about 100 MB/s", "", "", "a")
    assert features.design_of([row]).offset([row])[0] == pytest.approx(np.log(10.0))
    other = replace(row, log_stated=None)
    assert features.design_of([other]).offset([other])[0] == pytest.approx(np.log(5.0))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"save_total_s": [1.0, -1.0]}, "row 2: save_total_s -1.0 must be above 0"),
        ({"save_block_s": [1.0, 3.0]}, "row 2: save_block_s 3 is more than save_total_s 2"),
        ({"ckpt_GB": [1.0, 0.0]}, "row 2: ckpt_GB 0.0 must be above 0"),
        ({"writers": [1, 0]}, "row 2: writers 0 must be at least 1"),
        ({"source": ["a", None]}, "row 2: source is missing"),
        ({"ckpt_GB": [None, None]}, "no row has seconds"),
    ],
)
def test_a_wrong_row_is_named(columns: dict[str, object], text: str) -> None:
    good = {"source": ["a", "b"], "ckpt_GB": [1.0, 2.0], "save_total_s": [1.0, 2.0]}
    with pytest.raises(DataError, match=text):
        from_frame(inference.measured(pd.DataFrame({**good, **columns}), "checkpoints").frame)
