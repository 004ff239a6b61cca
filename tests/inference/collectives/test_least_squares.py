"""Least squares of collectives: latency and bandwidth of clean curves, spikes, what it refuses, and what jobs take over."""

import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import inference
from inference.collectives.data import from_frame
from inference.collectives.least_squares import are_two_numbers_enough, fit_two_numbers
from prism_jax.fits.models import CollectiveRun
from prism_jax.fits.picture import plot_bandwidths

SIZES = 2.0 ** np.arange(3, 33)
LATENCY_S, BYTES_PER_S = 30e-6, 200e9


def curve(seed: int, noise: float = 0.01, op: str = "all_reduce", **changes: object) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = np.repeat(SIZES, 2)
    seconds = (LATENCY_S + size / BYTES_PER_S) * np.exp(noise * rng.standard_normal(len(size)))
    table = {"op": op, "message_bytes": size, "n_gpus": 16, "n_nodes": 2, "gpu": "H100", "duration_s": seconds}
    return pd.DataFrame(table | {"in_place": np.tile(["out", "in"], len(SIZES))} | changes)


def two_numbers(frame: pd.DataFrame) -> tuple[float, float, np.ndarray]:
    data = from_frame(frame)
    found = fit_two_numbers("power", data, 0)
    sd = np.sqrt(np.diag(found.covariance))
    return float(np.exp(found.held[0])), float(np.exp(found.held[6])), sd[[0, 6]]


def test_latency_and_bandwidth_of_a_clean_curve_are_found_with_honest_intervals() -> None:
    inside = np.zeros(2)
    for seed in range(60):
        latency, rate, sd = two_numbers(curve(seed))
        off = np.abs(np.log([latency / LATENCY_S, rate / BYTES_PER_S]))
        assert (off < 0.015).all()
        inside += off < 1.645 * sd
    # 90% intervals; with 60 curves fewer than 45 inside happens once in 2,000 times
    assert (inside >= 45).all()


def test_it_is_what_least_squares_of_log_seconds_give() -> None:
    from scipy.optimize import curve_fit

    frame = curve(3)
    log_bytes = np.log(frame["message_bytes"])

    def law(x: np.ndarray, a: float, b: float) -> np.ndarray:
        return np.logaddexp(a, x - b)

    best, _ = curve_fit(law, log_bytes, np.log(frame["duration_s"]), p0=(-10.0, 26.0))
    latency, rate, _ = two_numbers(frame)
    assert np.log([latency, rate]) == pytest.approx(best, abs=0.004)


def test_slow_sizes_count_little() -> None:
    frame = curve(1)
    frame.loc[[20, 40], "duration_s"] *= 30.0
    latency, rate, _ = two_numbers(frame)
    assert [latency, rate] == pytest.approx([LATENCY_S, BYTES_PER_S], rel=0.01)


def test_a_clean_log_is_fitted_without_sampling_and_quickly() -> None:
    started = time.process_time()
    found = inference.fit(curve(0), model="collectives", key=jax.random.key(0))
    assert time.process_time() - started < 10.0
    assert found.method == "least_squares"
    assert found.verdict.sentence.startswith("good: least squares, a latency and a bandwidth, leave ")
    figures = next(iter(found.describe()["least_squares"].values()))["16 GPUs in 2 nodes"]
    assert figures["latency_s"][1] == pytest.approx(LATENCY_S, rel=0.01)
    assert figures["bus_bytes_per_s"][1] == pytest.approx(BYTES_PER_S * 2 * 15 / 16, rel=0.01)


def test_predictions_follow_the_curve() -> None:
    found = inference.fit(curve(0), model="collectives", key=jax.random.key(0), method="least_squares")
    at = {"op": "all_reduce", "n_gpus": 16, "n_nodes": 2, "gpu": "H100", "key": jax.random.key(1)}
    for size in (1024.0, 2.0**20, 2.0**30):
        seconds = found.model.seconds(found.data, found.draws, message_bytes=size, **at)  # pyright: ignore[reportAttributeAccessIssue]
        assert np.median(seconds) == pytest.approx(LATENCY_S + size / BYTES_PER_S, rel=0.02)


def test_a_fit_by_least_squares_is_kept_and_read_again(tmp_path: Path) -> None:
    found = inference.fit(curve(0), model="collectives", key=jax.random.key(0))
    found.save(tmp_path / "net.npz")
    again = inference.Fit.load(tmp_path / "net.npz")
    assert again.method == "least_squares"
    assert again.describe()["least_squares"] == found.describe()["least_squares"]


def test_a_curve_that_sags_or_several_scales_are_not_called_two_numbers() -> None:
    frame = curve(0)
    middle = (frame["message_bytes"] > 2**17) & (frame["message_bytes"] < 2**24)
    frame.loc[middle, "duration_s"] *= 1.6
    assert not are_two_numbers_enough("power", from_frame(frame))
    scales = pd.concat([curve(0), curve(1, n_gpus=32, n_nodes=4)])
    assert not are_two_numbers_enough("power", from_frame(scales))
    assert are_two_numbers_enough("power", from_frame(pd.concat([curve(0), curve(1, op="all_gather")])))


def test_a_law_that_misses_the_sizes_is_failed_and_says_by_how_much() -> None:
    frame = curve(0)
    frame["duration_s"] *= np.exp(0.5 * np.sin(np.log2(frame["message_bytes"]) * 2.0))
    found = inference.fit(frame, model="collectives", key=jax.random.key(0), method="least_squares")
    assert not found.verdict.ok
    assert found.verdict.cause == "law"
    assert "more than 10%" in found.verdict.sentence


def test_one_size_gives_a_bandwidth_and_leaves_the_latency_open() -> None:
    frame = curve(0).assign(op="p2p", n_gpus=2).query("message_bytes == 2**30 and in_place == 'out'")
    latency, rate, sd = two_numbers(frame)
    assert rate == pytest.approx(BYTES_PER_S, rel=0.05)
    assert sd[0] > 0.5
    assert 0.04 < sd[1] < 0.2
    assert latency > 0.0


@pytest.mark.parametrize(("n_bytes", "known", "left"), [(2**30, "bandwidth", "latency"), (8, "latency", "bandwidth")])
def test_the_verdict_on_one_size_says_what_it_leaves_open(n_bytes: int, known: str, left: str) -> None:
    frame = curve(0).query("message_bytes == @n_bytes")
    verdict = inference.fit(frame, model="collectives", key=jax.random.key(0)).verdict
    assert verdict.ok
    assert verdict.sentence.startswith(f"{known} only: one size leaves the {left} open; ")


@pytest.mark.parametrize(
    ("sizes", "known"),
    [
        ([2**28, 2**30], "bandwidth only: 2 sizes from 256 MiB to 1 GiB leave the latency open"),
        ([2**28, 2**29, 2**30], "bandwidth only: 3 sizes from 256 MiB to 1 GiB leave the latency open"),
        ([8, 64, 512], "latency only: 3 sizes from 8 B to 512 B leave the bandwidth open"),
        ([8, 2**30], "good"),  # 30 us and 5.4 ms: each tells one number
        (list(SIZES), "good"),
    ],
    ids=["two huge", "three huge", "three tiny", "one of each", "all"],
)
def test_a_number_of_which_the_sizes_say_less_than_its_prior_is_open(sizes: list[int], known: str) -> None:
    """At 256 MiB a latency of 30 us is 2% of the seconds, which are good to 5%; all other sizes can be told by hand too."""
    frame = curve(0).query("message_bytes in @sizes")
    found = inference.fit(frame, model="collectives", key=jax.random.key(0))
    assert found.verdict.ok
    assert found.verdict.sentence.startswith(known)
    open_notes = [note for note in found.describe()["notes"] if "not known from" in note]
    assert len(open_notes) == (known != "good")
    title = plot_bandwidths(found.curves(), found.summary()).get_suptitle()
    assert title == f"collectives: {'good fit' if known == 'good' else known.partition(':')[0]}"


def test_the_verdict_names_the_collective_of_one_size_among_others() -> None:
    frame = pd.concat([curve(0), curve(1, op="all_gather").query("message_bytes == 2**30")])
    verdict = inference.fit(frame, model="collectives", key=jax.random.key(0), method="least_squares").verdict
    assert verdict.ok
    assert verdict.sentence.startswith("bandwidth only (all_gather")


CASES = Path(__file__).parents[3].parent / "shared" / "data" / "cases" / "nccl"
OPTIONS = {"osu_allreduce.txt": CollectiveRun(n_gpus=16, n_nodes=2)}


@pytest.mark.skipif(not CASES.exists(), reason="shared logs are not here")
def test_the_shared_logs_are_read_and_fitted_by_two_numbers() -> None:
    logs = sorted(CASES.iterdir())
    for log in logs:
        measured = inference.measured([log], "collectives", collective=OPTIONS.get(log.name))
        assert are_two_numbers_enough("power", from_frame(measured.frame)), log.name
    assert len(logs) >= 16
