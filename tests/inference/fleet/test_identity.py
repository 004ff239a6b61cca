"""Which GPU a row is about, in every spelling of host and GPU; and which chips and nodes are named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference.data.read import read_measurements, tidy
from inference.fleet.data import COLUMNS, FleetData, fleet_data, placed
from inference.fleet.measured import outliers
from inference.fleet.model import FleetModel
from prism_jax.core.errors import DataError
from tests.inference.fleet.fleets import TRUTH, fleet_table

CLEAN = {**TRUTH, "slow_prob": 0.0, "far_prob": 0.0, "gpu_spread": 0.01, "node_spread": 0.004}
N_NODE, PER_NODE = 32, 8


def table(seed: int = 0, chips: dict[tuple[int, int], float] | None = None, nodes: dict[int, float] | None = None):
    """Rows with the columns n and g of node and index; planted chips and nodes take so much longer."""
    frame = fleet_table(np.random.default_rng(seed), n_node=N_NODE, gpus_per_node=PER_NODE, n_run=6, truth=CLEAN)
    frame = frame.assign(n=frame["node"].str[1:].astype(int), g=frame["gpu"].str.rpartition("-")[2].astype(int))
    for (n, g), share in (chips or {}).items():
        frame.loc[(frame["n"] == n) & (frame["g"] == g), "duration_s"] *= 1.0 + share
    for n, share in (nodes or {}).items():
        frame.loc[frame["n"] == n, "duration_s"] *= 1.0 + share
    return frame.drop(columns=["gpu", "node"])


SPELLINGS = {
    "host,gpu": lambda t: {"host": "gpu" + t["n"].astype(str).str.zfill(3), "gpu": t["g"]},
    "node,local_rank": lambda t: {"node": t["n"], "local_rank": t["g"]},
    "hostname,gpu_id": lambda t: {"hostname": "h" + t["n"].astype(str), "gpu_id": t["g"]},
    "hostname,gpu_index": lambda t: {"hostname": "h" + t["n"].astype(str), "gpu_index": t["g"].astype(float)},
    "gpu013:4": lambda t: {"gpu": "gpu" + t["n"].astype(str).str.zfill(3) + ":" + t["g"].astype(str)},
    "node3-gpu4": lambda t: {"gpu": "node" + t["n"].astype(str) + "-gpu" + t["g"].astype(str)},
    "host,uuid": lambda t: {"host": t["n"], "uuid": "GPU-" + t["n"].astype(str) + "-" + t["g"].astype(str) + "f"},
    "host,rank,local_rank": lambda t: {"host": t["n"], "rank": t["n"] * 8 + t["g"], "local_rank": t["g"]},
}


def data_of(frame: pd.DataFrame, spelling: str) -> FleetData:
    spelled = pd.DataFrame(SPELLINGS[spelling](frame)).assign(**frame[["run", "duration_s"]])
    return fleet_data(tidy(spelled, COLUMNS).frame)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_the_same_fleet(spelling: str) -> None:
    data = data_of(table(), spelling)
    assert (len(data.gpu), len(data.node)) == (N_NODE * PER_NODE, N_NODE)
    assert (np.bincount(data.gpu_node) == PER_NODE).all()
    one = data_of(table(), "host,gpu")
    assert sorted(data.mean_log) == pytest.approx(sorted(one.mean_log))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_shuffled_rows_are_the_same_fleet(spelling: str) -> None:
    frame = table(chips={(3, 1): 0.16})
    for one, other in zip(
        vars(data_of(frame, spelling)).values(),
        vars(data_of(frame.sample(frac=1.0, random_state=1), spelling)).values(),
        strict=True,
    ):
        if isinstance(one, np.ndarray) and one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-15)
        else:
            assert np.array_equal(one, other)


def test_ranks_alone_name_no_nodes_and_share_nothing_with_them() -> None:
    frame = table()
    data = fleet_data(
        tidy(pd.DataFrame({"rank": frame["n"] * 8 + frame["g"], "duration_s": frame["duration_s"]}), COLUMNS).frame
    )
    assert len(data.gpu) == N_NODE * PER_NODE
    assert not data.has_nodes
    draws = {name: np.full((50, 1), 0.01) for name in ("gpu_spread", "node_spread", "rest_spread", "run_spread")}
    draws |= {name: np.full(50, 0.1) for name in ("slow_prob", "slow_shift", "slow_spread", "far_prob", "far_spread")}
    said = FleetModel().describe(data, draws)
    assert set(said["variance_shares"]) == {"gpu and node", "run"}
    assert any("how nodes differ is not known" in note for note in said["notes"])


def test_a_uuid_that_moved_to_another_node_is_one_gpu() -> None:
    frame = table()
    uuid = "GPU-" + frame["n"].astype(str) + "f" + frame["g"].astype(str)
    node = frame["n"].where((frame["n"] != 2) | (frame["run"] != "r5"), 3)
    data = fleet_data(tidy(pd.DataFrame({"gpu": uuid, "node": node, "duration_s": frame["duration_s"]}), COLUMNS).frame)
    assert len(data.gpu) == N_NODE * PER_NODE


def test_chips_and_nodes_are_named_with_how_far_they_lie() -> None:
    chips, nodes = {(13, 4): 0.16, (20, 0): 0.11, (27, 7): 0.075}, {5: 0.05}
    found = outliers(data_of(table(chips=chips, nodes=nodes), "host,gpu"))
    assert {one.name for one in found.chips} == {"gpu013:4", "gpu020:0", "gpu027:7"}
    assert found.chips[0].name == "gpu013:4"
    assert found.chips[0].excess == pytest.approx(0.16, abs=0.03)
    assert found.chips[0].sigma == pytest.approx(15.0, abs=3.0)
    assert [one.name for one in found.nodes] == ["gpu005"]
    assert found.nodes[0].excess == pytest.approx(0.05, abs=0.015)


def test_clean_fleets_name_nothing() -> None:
    """At most one chip and one node in a thousand fleets by chance: none in 15 with probability 97%."""
    named = [outliers(data_of(table(seed), "host,gpu")) for seed in range(15)]
    assert sum(len(one.chips) + len(one.nodes) for one in named) == 0


def test_a_slow_node_does_not_make_its_chips_slow_nor_a_slow_chip_its_node() -> None:
    node = outliers(data_of(table(nodes={5: 0.10}), "host,gpu"))
    assert ([one.name for one in node.nodes], node.chips) == (["gpu005"], ())
    chip = outliers(data_of(table(chips={(5, 0): 0.5}), "host,gpu"))
    assert ([one.name for one in chip.chips], chip.nodes) == (["gpu005:0"], ())


def test_speeds_are_read_as_times_of_a_unit_of_work(tmp_path: Path) -> None:
    frame = table(chips={(3, 4): 0.16})
    speeds = pd.DataFrame(
        {"host": frame["n"], "gpu": frame["g"], "run": frame["run"], "TFLOP/s": 0.7 / frame["duration_s"]}
    )
    speeds.to_csv(tmp_path / "gemm.csv", index=False)
    measured = read_measurements([tmp_path / "gemm.csv"], COLUMNS)
    assert any("duration_s is one over TFLOP/s" in note for note in measured.hygiene.notes)
    assert [one.name for one in outliers(fleet_data(measured.frame)).chips] == ["3:4"]
    (tmp_path / "two.csv").write_text("gpu,gemm_tflops,hbm_gb_s\n0,700,3000\n")
    with pytest.raises(DataError, match=r"speeds of several kernels \(gemm_tflops, hbm_gb_s\)"):
        read_measurements([tmp_path / "two.csv"], COLUMNS)


def test_a_log_of_clocks_alone_is_a_fleet_where_it_works(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    slow = np.exp(0.01 * rng.standard_normal((8, 8)))
    slow[3, 4] = 1.16
    rows = [
        f"2026/03/01 10:00:{t:02d}.000, GPU-{n}f{g}a, h{n}, "
        + (f"{1755 / slow[n, g]:.0f} MHz, 690 W" if t >= 5 else "210 MHz, 70 W")
        for t in range(15)
        for n in range(8)
        for g in range(8)
    ]
    head = "timestamp, uuid, hostname, clocks.current.sm [MHz], power.draw [W]"
    (tmp_path / "smi.csv").write_text("\n".join([head, *rows]) + "\n")
    measured = read_measurements([tmp_path / "smi.csv"], COLUMNS)
    data = fleet_data(measured.frame)
    assert (len(measured.frame), len(data.gpu), len(data.node)) == (640, 64, 8)
    (chip,) = outliers(data).chips
    assert (chip.gpu, chip.node) == ("GPU-3f4a", "h3")
    assert chip.excess == pytest.approx(0.16, abs=0.03)


@pytest.mark.parametrize("head", ["hostname,device,Time (ms)", "Host,GPU,time_ms", "node,local_rank,Kernel Time [ms]"])
@pytest.mark.parametrize("gpu", ["{}", "cuda:{}", "GPU{}", "mixed"])
def test_hosts_with_their_domain_and_any_name_of_a_gpu_are_the_same_fleet(tmp_path, head: str, gpu: str) -> None:
    spellings = ("{}", "cuda:{}", "gpu {}")
    rows = [
        f"gpu{host:03d}{'.cluster.local' * ((host + one + again) % 2)},"
        f"{(spellings[again] if gpu == 'mixed' else gpu).format(one)},{10 + again}"
        for host in range(1, 5)
        for one in range(8)
        for again in range(3)
    ]
    file = tmp_path / "times.csv"
    file.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    found, notes = placed(read_measurements([file], COLUMNS).frame)
    assert set(found["gpu"]) == {f"gpu{host:03d}:{one}" for host in range(1, 5) for one in range(8)}
    assert float(np.median(found["duration_s"])) == pytest.approx(0.011)
    assert "32 in all" in notes[0]


def test_two_hosts_of_one_short_name_stay_apart() -> None:
    rows = pd.DataFrame({"gpu": [0, 0, 0] * 2, "node": ["a.east", "a.west", "a"] * 2, "duration_s": 1.0})
    assert len(set(placed(rows)[0]["node"])) == 3
