"""Collectives: recovery from simulated tables, what intervals do away from the measurements, and rows that are refused."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from inference.collectives.data import COLUMNS, CollectivesData, floats, from_frame, plain_rows
from inference.collectives.laws import LAWS, log_seconds, place, priors
from inference.collectives.model import Collectives, alpha_beta, sigmoid
from inference.collectives.predict import FabricPlace, bridge, log_centre
from inference.engine.program import Settings
from inference.fitting.fit import posterior as sample
from prism_jax.core.errors import DataError, FitError
from prism_jax.variability.families import StudentT

SIZES: np.ndarray = 2.0 ** np.linspace(12.0, 28.0, 13)
MODEL = Collectives("alpha_beta")


def table(
    scales: tuple[int, ...] = (8, 16, 32, 64), noise: float = 0.02, n_repeat: int = 2, seed: int = 0
) -> pd.DataFrame:
    """All-reduce on nodes of eight: 10 us per network doubling on 20 us, 100 GB/s of bus bandwidth across nodes."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in scales:
        for size in SIZES:
            uneven = 0.03 * rng.standard_t(6)
            for side in ("out", "in")[:n_repeat]:
                seconds = true_seconds(n, size) * np.exp(uneven + noise * rng.standard_t(6))
                rows.append(
                    {
                        "op": "all_reduce",
                        "message_bytes": size,
                        "n_gpus": n,
                        "n_nodes": n // 8,
                        "duration_s": seconds,
                        "in_place": side,
                    }
                )
    return pd.DataFrame(rows)


def true_seconds(n: int, size: float) -> float:
    rate = 100e9 if n > 8 else 250e9
    return 20e-6 + 10e-6 * np.log2(n / 8) + 2 * (n - 1) / n * size / rate


def posterior(
    frame: pd.DataFrame, model: Collectives = MODEL, n: int = 100
) -> tuple[CollectivesData, dict[str, np.ndarray]]:
    data = model.prepare(frame)
    settings = Settings(n_chain=1, n_warmup=n, n_draw=n, max_tree_depth=6)
    drawn = sample(model, data, "nuts", jax.random.key(0), settings=settings).draws
    return data, {name: value.reshape(-1, *value.shape[2:]) for name, value in drawn.items()}


@pytest.fixture(scope="module")
def fitted() -> tuple[CollectivesData, dict[str, np.ndarray]]:
    with jax.enable_x64(True):
        return posterior(table(scales=(8, 16, 64)))


def ask(fitted: tuple[CollectivesData, dict[str, np.ndarray]], n: int, size: float, **more: Any) -> np.ndarray:
    data, draws = fitted
    query = {
        "op": "all_reduce",
        "message_bytes": size,
        "n_gpus": n,
        "n_nodes": max(1, n // 8),
        "key": jax.random.key(1),
    } | more
    return MODEL.seconds(data, draws, **query)


@pytest.mark.parametrize("n", [8, 16, 64, 32, 128])
def test_times_of_an_alpha_beta_network_are_recovered_at_measured_and_other_scales(fitted: Any, n: int) -> None:
    for size in (2.0**12, 2.0**19, 2.0**28):  # 2^19 is between measured sizes
        assert np.median(ask(fitted, n, size)) == pytest.approx(true_seconds(n, size), rel=0.12)


def test_reported_latency_and_bandwidth_are_within_twice_their_intervals_of_the_truth(fitted: Any) -> None:
    """False alarm 1e-3 each, where intervals are right."""
    (fabric,) = MODEL.describe(*fitted)["fabrics"].values()
    for name, true in (("bus_bytes_per_s", 100e9), ("latency_s", 50e-6)):
        low, middle, high = fabric["64 GPUs in 8 nodes"][name]
        assert abs(middle - true) < high - low < 0.5 * true


def test_what_is_expected_is_less_certain_at_scales_not_measured(fitted: Any) -> None:
    data, draws = fitted

    def spread(n: int) -> float:
        place = FabricPlace("all_reduce", float(n), float(max(1, n // 8)), fabric=0, config=0)
        return float(log_centre(MODEL.size_law, data, draws, place, SIZES, np.random.default_rng(0)).std(axis=0).mean())

    assert spread(32) > max(spread(16), spread(64))  # between 16 and 64
    assert spread(512) > spread(128) > 1.1 * spread(64)
    assert spread(4) > 1.1 * spread(8)  # below all that was measured


def test_a_fabric_that_was_not_measured_has_a_wide_interval(fitted: Any) -> None:
    known, unknown = ask(fitted, 64, 1e8), ask(fitted, 64, 1e8, gpu="something else")
    assert np.std(np.log(unknown)) > 5 * np.std(np.log(known))


def test_noise_becomes_the_call_factor_of_its_operation(fitted: Any) -> None:
    data, draws = fitted
    tree = MODEL.variability(data, {name: value.mean(axis=0) for name, value in draws.items()})
    call = tree.of("all_reduce").call
    assert isinstance(call, StudentT)
    assert 0.01 < call.scale_cv < 0.04  # 2% was simulated
    assert np.mean(call.ppf_normal(np.random.default_rng(0).standard_normal(200_000))) == pytest.approx(1.0, abs=0.01)
    assert tree.of("all_gather").is_zero


def test_left_out_scale_is_scored_beside_in_sample_fits(fitted: Any) -> None:
    data, draws = fitted
    (score,) = MODEL.score(data, draws, table(scales=(32,), seed=1), "n_gpus", jax.random.key(0))
    assert score.group == "32"
    assert score.extra["mape"] < 0.1
    assert score.extra["mape_alpha_beta"] < 0.06  # the truth has that form
    assert score.extra["mape_nearest"] > score.extra["mape"]
    assert score.coverage_90 >= 0.8


def test_without_repeats_there_is_no_noise_to_hand_on() -> None:
    data = from_frame(table(n_repeat=1))
    with pytest.raises(FitError, match="measured once"):
        MODEL.variability(data, {})


@pytest.mark.parametrize("law", LAWS)
def test_laws_increase_with_size_wherever_their_parameters_lie(law: str) -> None:
    rng = np.random.default_rng(0)
    size = 2.0 ** np.linspace(3, 36, 200)
    for n, nodes in ((2, 1), (8, 1), (16, 2), (512, 64)):
        where = place(["all_reduce"], [n], [nodes])
        drawn = {
            k: (p.median + np.hypot(p.sd, p.between) * rng.standard_normal((100, 1))) for k, p in priors(law).items()
        }
        with jax.enable_x64(True):
            seconds = np.asarray(log_seconds(law, drawn | {"two_node": 0.3}, where, size[None]))
        assert np.isfinite(seconds).all()
        assert (np.diff(seconds, axis=1) > -1e-12).all()


def test_laws_agree_with_alpha_beta_at_both_ends() -> None:
    p = {name: prior.median for law in LAWS for name, prior in priors(law).items()} | {"two_node": 0.0}
    where = place(["all_reduce"], [16.0], [4.0])
    for law in ("sigmoid", "power"):
        with jax.enable_x64(True):
            ratio = [
                float(log_seconds(law, p, where, size)[0] - log_seconds("alpha_beta", p, where, size)[0])
                for size in (8.0, 1e15)
            ]
        assert np.abs(ratio).max() < 0.02


def test_a_random_walk_between_two_scales_is_interpolated_and_beyond_them_carried_on() -> None:
    residual = np.array([[[1.0], [3.0]]])  # at scales 3 and 5, of a walk with variance one per doubling
    for scale, above, centre, variance in (
        (4.0, 1, 2.0, 0.5),
        (4.5, 1, 2.5, 0.375),
        (6.5, 2, 3.0, 1.5),
        (1.0, 0, 1.0, 2.0),
    ):
        mean, sd = bridge(residual, np.abs(np.array([[3.0, 5.0]]) - scale), above)
        assert (mean.item(), sd.item() ** 2) == (pytest.approx(centre), pytest.approx(variance))


def test_flagged_rows_and_rows_without_communication_are_dropped_and_counted() -> None:
    frame = table(scales=(8, 16)).assign(setting="")
    frame.loc[0:2, "setting"] = "SUSPECT: about 1 GB/s inter-node, looks like a TCP fallback"
    frame.loc[3, "setting"] = "SUSPECT: 512 wrong values reported"
    frame.loc[4, "n_gpus"] = 1
    frame.loc[5, "duration_s"] = 1e6
    frame.loc[6, "op"] = "ep_combine"
    rows, notes = plain_rows(frame)
    assert len(rows) == len(frame) - 7
    assert notes[0] == "3 rows dropped: flagged by their source as run over a TCP or transport fallback"
    assert [note.split()[0] for note in notes] == ["3", "1", "1", "1", "1"]


def test_in_place_columns_become_rows_of_their_own() -> None:
    frame = table(scales=(16,), n_repeat=1).drop(columns=["in_place", "n_nodes"]).assign(gpus_per_node=8.0)
    rows, _ = plain_rows(frame.assign(duration_in_place_s=frame["duration_s"] * 0.9))
    assert len(rows) == 2 * len(frame)
    assert set(rows["n_nodes"]) == {2.0}
    inside = floats(rows, "in_place") == 1.0
    assert floats(rows, "duration_s")[inside] == pytest.approx(0.9 * floats(rows, "duration_s")[~inside])


def test_misspelt_operation_is_named() -> None:
    with pytest.raises(FitError, match="did you mean all_reduce"):
        from_frame(table().assign(op="all_redcue"))


def test_operation_that_was_not_measured_is_refused(fitted: Any) -> None:
    with pytest.raises(FitError, match="all_gather.*not measured"):
        ask(fitted, 16, 1e6, op="all_gather")
    with pytest.raises(FitError, match="did you mean all_reduce"):
        ask(fitted, 16, 1e6, op="all-reduced")
    with pytest.raises(FitError, match="at least two GPUs"):
        ask(fitted, 1, 1e6)


def test_a_table_without_any_usable_row_is_refused() -> None:
    with pytest.raises(DataError, match="no measurement"):
        from_frame(table().assign(n_gpus=1))


def test_in_sample_fits_find_their_own_form() -> None:
    size = SIZES
    assert alpha_beta(size, np.log(1e-5 + size / 1e11)) == pytest.approx(np.log(1e-5 + size / 1e11), abs=1e-6)
    decades = 7.0 + 4.0 / (1.0 + np.exp(-0.5 * (np.log2(size) - 18.0)))
    log_s = np.log(2.0 * size) - np.log(10.0) * decades
    assert sigmoid(size, log_s, 2.0) == pytest.approx(log_s, abs=1e-4)


def test_known_in_sample_errors_of_the_a100_table_are_reproduced(shared_data: Path) -> None:
    raw = pd.read_csv(shared_data / "collectives" / "allreduce_a100_ib.csv")
    known = {
        2: (0.449, 0.175),
        4: (0.269, 0.109),
        8: (0.160, 0.104),
        16: (0.185, 0.125),
        32: (0.183, 0.134),
        64: (0.211, 0.231),
    }
    for n, expected in known.items():
        here = floats(raw, "num_gpus") == n
        size, log_s = floats(raw, "msg_bytes")[here], np.log(floats(raw, "time_us_in_place")[here] * 1e-6)
        for fit, figure in zip((alpha_beta, sigmoid), expected, strict=True):
            assert np.mean(np.abs(np.expm1(fit(size, log_s, 2 * (n - 1) / n) - log_s))) == pytest.approx(
                figure, abs=0.001
            )


def test_columns_of_both_shared_tables_are_known(shared_data: Path) -> None:
    names = {name for column in COLUMNS for name in (column.name, *column.aliases)}
    for file in ("allreduce_a100_ib.csv", "collectives.csv.gz"):
        header = set(pd.read_csv(shared_data / "collectives" / file, nrows=1).columns)
        assert {"op", "collective"} & header & names
        for column in COLUMNS:
            if column.required:
                assert header & {column.name, *column.aliases}, column.name


@pytest.mark.slow
@pytest.mark.parametrize("scale", [4, 8, 16, 32, 64])
def test_a_scale_of_the_a100_table_left_out_is_predicted_better_than_alpha_beta_fits_it(
    shared_data: Path, scale: int
) -> None:
    from experiments.variability_study.score_collectives import leave_one_scale_out, read

    with jax.enable_x64(True):
        figures = leave_one_scale_out(read(shared_data, "a100"), Collectives(), 150, [scale]).iloc[0]
    assert figures["mape_in_place"] < figures["mape_alpha_beta"]
