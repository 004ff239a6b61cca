"""Speeds, rates, times and clocks as slowdowns: one fleet in many spellings is one table."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.measured_speeds import kind_of, recognised
from prism_jax.slowdowns.slowdowns_file import read_slowdowns

N = 16
TRUE = np.exp(0.01 * np.random.default_rng(0).standard_normal(N))
TRUE[5] = 1.22
TRUE /= np.median(TRUE)
SPELLINGS = {
    "tflops": lambda x: 700.0 / x,
    "TFLOP/s": lambda x: 700.0 / x,
    "speed": lambda x: 1.0 / x,
    "relative_speed": lambda x: 0.98 / x,
    "score": lambda x: 1000.0 / x,
    "tokens_per_sec": lambda x: 12_000.0 / x,
    "duration_s": lambda x: 0.0123 * x,
    "step time (ms)": lambda x: 431.0 * x,
    "latency_us": lambda x: 12.3 * x,
}
PLACES = {
    "gpu": lambda g: f"{g}",
    "rank": lambda g: f"{g}",
    "host,gpu": lambda g: f"n{g // 8},{g % 8}",
    "hostname,local_rank": lambda g: f"n{g // 8},{g % 8}",
    "node,gpu_id": lambda g: f"{g // 8},{g % 8}",
    "gpu ": lambda g: f"n{g // 8}:{g % 8}",
}


def read(path: Path, text: str, n_devices: int = N):
    path.write_text(text)
    return read_slowdowns(path, n_devices, node_size=8)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_fleet_is_the_same_table(tmp_path: Path, spelling: str, place: str):
    rows = [f"{PLACES[place](g)},{SPELLINGS[spelling](TRUE[g]):.9g},ok" for g in range(N)]
    table = read(tmp_path / "a.csv", "\n".join([f"{place.strip()},{spelling},comment", *rows]) + "\n")
    assert list(table.factors) == ["all"]
    np.testing.assert_allclose([table.factors["all"][g] for g in range(N)], TRUE, rtol=1e-6)
    assert any(spelling in note for note in table.notes)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_repeats_in_any_order_count_with_their_median(tmp_path_factory: pytest.TempPathFactory, seed: int):
    rng = np.random.default_rng(1)
    rows = [
        f"{g},{run},{700.0 / TRUE[g] * (1 + 0.001 * rng.standard_normal()):.4f}" for g in range(N) for run in range(9)
    ]
    folder = tmp_path_factory.mktemp("repeats")
    tables = []
    for order in (np.arange(len(rows)), np.random.default_rng(seed).permutation(len(rows))):
        tables.append(read(folder / "a.csv", "\n".join(["rank,run,tflops", *(rows[i] for i in order)]) + "\n"))
    assert tables[0] == tables[1]
    np.testing.assert_allclose([tables[0].factors["all"][g] for g in range(N)], TRUE, rtol=2e-3)


def test_kernels_are_compared_with_themselves_and_tell_their_class(tmp_path: Path):
    rows = [f"{g},gemm_8k,{0.5 * TRUE[g]:.9f}\n{g},hbm_copy,{0.02 * TRUE[N - 1 - g]:.9f}" for g in range(N)]
    factors = read(tmp_path / "a.csv", "\n".join(["gpu,kernel,duration_s", *rows]) + "\n").factors
    np.testing.assert_allclose([factors["gemm"][g] for g in range(N)], TRUE, rtol=1e-6)
    np.testing.assert_allclose([factors["memory"][N - 1 - g] for g in range(N)], TRUE, rtol=1e-6)


def test_columns_of_kernel_classes(tmp_path: Path):
    rows = [f"{g},{700.0 / TRUE[g]:.9g},{3.2 / TRUE[N - 1 - g]:.9g}" for g in range(N)]
    factors = read(tmp_path / "a.csv", "\n".join(["gpu,gemm_tflops,hbm_tb_s", *rows]) + "\n").factors
    assert sorted(factors) == ["gemm", "memory"]
    assert factors["memory"][N - 1 - 5] == pytest.approx(TRUE[5])


def test_clocks_of_nvidia_smi_under_load_slow_down_what_computes(tmp_path: Path):
    head = "timestamp, index, clocks.current.sm [MHz], clocks.mem [MHz], utilization.gpu [%], power.draw [W]"
    rows = [
        f"2026/03/01 10:00:{s:02d}.000, {g}, {210 if s < 5 else 1755.0 / (1.2 if g == 3 else 1.0):.0f} MHz, 2619 MHz, "
        f"{0 if s < 5 else 100} %, {70 if s < 5 else 690} W"
        for s in range(20)
        for g in range(8)
    ]
    factors = read(tmp_path / "a.csv", "\n".join([head, *rows]) + "\n", n_devices=8).factors
    assert sorted(factors) == ["attention", "gemm"]
    assert factors["gemm"][3] == pytest.approx(1.2, abs=1e-3)
    assert factors["gemm"][0] == pytest.approx(1.0)


@pytest.mark.parametrize("values", [(0.99, 1.0, 0.82, 0.99, 0.99), (712.0, 718.0, 590.0, 715.0)])
def test_scores_under_the_name_of_slowdowns_are_recognised_and_said(values: tuple[float, ...]):
    found = recognised(np.array(values), "slowdown", "a.csv")
    assert int(np.argmax(found.factor)) == 2
    assert found.factor[2] == pytest.approx(1.21, abs=0.01)
    assert "read as speeds" in found.note


@pytest.mark.parametrize("values", [(1.01, 1.0, 1.22, 1.0, 1.01), (0.97, 1.0, 1.03), (0.9, 1.0, 1.3, 1.0), (1.2,)])
def test_slowdowns_stay_what_they_are(values: tuple[float, ...]):
    found = recognised(np.array(values), "slowdown", "a.csv")
    assert (found.factor.tolist(), found.note) == (list(values), "")


@pytest.mark.parametrize("values", [(0.86,), (0.5, 0.5, 1.0, 1.0, 1.0), (712.0, 715.0, 718.0)])
def test_what_nothing_tells_is_asked(values: tuple[float, ...]):
    with pytest.raises(DataError, match=r"a.csv slowdown: .*or speeds .* Call the column speed"):
        recognised(np.array(values), "slowdown", "a.csv")


@pytest.mark.parametrize(
    "name", ["timestamp", "power.limit [W]", "max_tflops", "temperature", "busbw", "step", "comment"]
)
def test_columns_that_are_no_speed(name: str):
    assert kind_of(name) is None


def test_two_speeds_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="several columns could be the speed: tflops, score"):
        read(tmp_path / "a.csv", "gpu,tflops,score\n0,1,1\n")
    with pytest.raises(DataError, match=r":3 tflops: '-5', but it must be more than 0"):
        read(tmp_path / "a.csv", "gpu,tflops\n0,1\n1,-5\n")


CASES = Path(__file__).parents[4] / "shared" / "data" / "cases" / "place"


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
@pytest.mark.parametrize("name", ["rel.csv", "slow.csv", "speed.csv"])
def test_the_third_node_is_the_slow_one(name: str):
    factors = read_slowdowns(CASES / name, 40, 8).factors["all"]
    assert max(factors, key=lambda device: factors[device]) // 8 == 2
    assert max(factors.values()) == pytest.approx(1.21, abs=0.02)
