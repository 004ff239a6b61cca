"""A network of one's own: a 2-D torus, one class, registered; check, predict, search, memory and `show networks` know it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from prism_jax.core.errors import ConfigError, Problem, SpecError
from prism_jax.cost.memory import memory
from prism_jax.cost.step import step_cost
from prism_jax.job.load_job import load_job
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.exhaustive import search
from prism_jax.search.plan_costs import FEASIBLE, feasibility
from prism_jax.search.space import PlanSpace
from prism_jax.shell.app import main
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from prism_jax.system import catalog
from prism_jax.system.collectives import NCCL
from prism_jax.system.network import CollectiveTime, Network
from prism_jax.system.network_kinds import LIBRARIES, NETWORKS, NetworkKind, TieredNetwork
from tests.support.jobs import stated


@dataclass(frozen=True)
class Torus2D:
    """Devices in rows and columns, each linked to its four neighbours; collectives are rings along rows, then along columns."""

    rows: int
    columns: int
    link_bytes_per_s: float
    hop_latency_s: float = 1e-6

    def __post_init__(self) -> None:
        if self.link_bytes_per_s < 1e9:
            text = f"{self.link_bytes_per_s:g} bytes/s, but slower than 1 GB/s is no link"
            raise SpecError.of(Problem("link_bytes_per_s", text))

    @property
    def n_devices(self) -> int:
        return self.rows * self.columns

    @property
    def n_distance(self) -> int:
        return self.rows // 2 + self.columns // 2 + 1

    def of_size(self, n_devices: int) -> Torus2D:
        return replace(self, rows=-(-n_devices // self.columns))

    def n_node(self, stride: int, size: int) -> int:
        return 1

    def leaves_node(self, distance: int) -> bool:
        return False

    def distances(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.intp]:
        down = np.abs(first // self.columns - second // self.columns)
        across = np.abs(first % self.columns - second % self.columns)
        return np.minimum(down, self.rows - down) + np.minimum(across, self.columns - across)

    def send_s(self, n_bytes: float, distance: int, stride: int) -> float:
        return distance * (self.hop_latency_s + n_bytes / self.link_bytes_per_s)  # a link carries `distance` messages

    def collective(self, kind: str, n_bytes: float, stride: int, size: int) -> CollectiveTime:
        if kind == "p2p":
            hops = self.distances(np.array([0]), np.array([stride]))[0]
            return CollectiveTime(self.send_s(n_bytes, int(hops), stride), "direct")
        across = min(size, max(1, self.columns // stride))
        rings = ((across, stride), (-(-size // across), max(1, stride // self.columns)))
        seconds = 0.0
        for n, hops in rings:
            each = {"all_to_all": n_bytes / 2, "broadcast": n_bytes / max(n - 1, 1)}.get(kind, n_bytes / n)
            seconds += (n - 1) * self.send_s(each, hops, stride)
            n_bytes /= 1 if kind in ("all_to_all", "broadcast") else n
        return CollectiveTime(2.0 * seconds if kind == "all_reduce" else seconds, "torus_ring")


KIND = NetworkKind("torus_2d", Torus2D, "2-D torus: rings along rows, then along columns")
JOB = """\
model: llama-2-7b
cluster:
  device: h100-sxm
  n_devices: 64
  network: {kind: torus_2d, rows: 8, columns: 8, link_bandwidth: 50 GB/s, hop_latency: 2 us}
plan: {tp: 4, pp: 2, dp: 8, micro_batch: 1, global_batch: 64, seq_len: 4096, zero_stage: 1, sequence_parallel: true}
"""
SPACE = PlanSpace(
    n_devices=(64,), tp=(2, 4, 8), pp=(1, 2, 4), cp=(1,), ep=(1,), micro_batch=(1, 2), virtual_stages=(1, 2),
    schedule=("1f1b", "interleaved"), recompute=("full",), zero_stage=(1,), sharding=("none",),
    sequence_parallel=(0, 1), overlap_tp=(0,), overlap_dp=(1,), overlap_pp=(0, 1),
)  # fmt: skip


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    with NETWORKS.with_item(KIND):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def mistakes(file: Path, *changes: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_job(file, changes)
    return str(caught.value)


def test_the_recipe_of_the_documentation_makes_the_same_network() -> None:
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    code = text.partition("## A network")[2].partition("```python")[2].partition("```")[0]
    recipe, registered, rest = code.partition("NETWORKS.add(")
    assert (registered, rest.strip()) == (
        "NETWORKS.add(",
        'NetworkKind("torus_2d", Torus2D, "2-D torus: rings along rows, then along columns"))',
    )
    made: dict[str, Any] = {"__name__": __name__}
    exec(recipe, made)
    own, theirs = Torus2D(4, 8, 50e9, 2e-6), made["Torus2D"](4, 8, 50e9, 2e-6)
    assert isinstance(theirs, Network)
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"):
        for stride, size in ((1, 32), (2, 4), (8, 4), (4, 2)):
            assert theirs.collective(kind, 1e7, stride, size) == own.collective(kind, 1e7, stride, size)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_an_all_reduce_on_a_square_takes_its_closed_form(n: int) -> None:
    n_bytes, rate, hop_s = 1e9, 50e9, 2e-6
    seconds, algorithm = Torus2D(n, n, rate, hop_s).collective("all_reduce", n_bytes, 1, n * n)
    assert seconds == pytest.approx(4 * (n - 1) * hop_s + 2 * (n * n - 1) / (n * n) * n_bytes / rate)
    assert algorithm == "torus_ring"


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"])
def test_twice_the_link_rate_halves_the_bandwidth_term(kind: str) -> None:
    stride, size = (8, 2) if kind == "p2p" else (2, 16)
    slow, fast = (Torus2D(8, 8, rate, 2e-6).collective(kind, 1e8, stride, size).seconds for rate in (50e9, 100e9))
    latency = Torus2D(8, 8, 1e30, 2e-6).collective(kind, 1e8, stride, size).seconds
    assert slow - latency == pytest.approx(2.0 * (fast - latency))


def test_distances_are_hops_around_the_torus() -> None:
    torus = Torus2D(4, 8, 50e9)
    first = np.zeros(5, dtype=np.intp)
    assert torus.distances(first, np.array([1, 7, 8, 24, 20])).tolist() == [1, 1, 1, 1, 6]
    assert torus.n_distance == 7


def test_a_job_file_describes_it(file: Path) -> None:
    job = load_job(file)
    assert job.cluster.network == job.cluster.fabric == Torus2D(8, 8, 50e9, 2e-6)
    assert isinstance(job.cluster.fabric, Network)
    assert job.cluster.tiers == ()
    assert pickle.loads(pickle.dumps(job.cluster)) == job.cluster
    assert hash(job.cluster.fabric) == hash(Torus2D(8, 8, 50e9, 2e-6))
    assert load_job(file, ["cluster.network.link_bandwidth=400 Gbit/s"]).cluster.fabric == job.cluster.fabric
    on_preset = load_job(file, ["cluster.preset=dgx-h100", "cluster.node_size=4"]).cluster
    assert (on_preset.network, on_preset.node_size) == (job.cluster.network, 4)


def test_mistakes_name_file_line_and_field(file: Path) -> None:
    at = f"{file}:5"
    assert mistakes(file, "cluster.network.kind=torus_2") == (
        "--set cluster.network.kind=torus_2: kind of network 'torus_2' is unknown, did you mean torus_2d?"
    )
    file.write_text(JOB.replace("rows: 8", "row: 8"))
    found = mistakes(file).splitlines()
    assert f"{at}:3 cluster.network.rows: is missing" in found[0]
    assert "cluster.network.row: unknown field, did you mean rows?" in found[1]
    file.write_text(JOB.replace("50 GB/s", "50 GB"))
    assert f"{at}:50 cluster.network.link_bandwidth: unit 'GB' is a unit of memory" in mistakes(file)
    file.write_text(JOB.replace("50 GB/s", "50 MB/s"))
    assert f"{at}:50 cluster.network.link_bandwidth: 5e+07 bytes/s, but slower" in mistakes(file)
    file.write_text(JOB.replace("kind: torus_2d, ", ""))
    assert f"{at}:3 cluster.network.kind: is missing; kinds are tiered, torus_2d" in mistakes(file)
    file.write_text(JOB.replace("rows: 8", "rows: 4"))
    assert "its network joins 32 devices, fewer than n_devices 64" in mistakes(file)
    file.write_text(JOB.replace("  network:", "  tiers: {nvlink: {latency: 1 us}}\n  network:"))
    assert "cluster.tiers: cannot be combined with network torus_2d, which has no tiers. Keep one." in mistakes(file)


def test_the_command_line_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "networks"]) == 0
    assert "2-D torus: rings along rows, then along columns" in capsys.readouterr().out
    assert main(["show", "networks", "torus_2d", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["fields"] == ["rows", "columns", "link_bandwidth", "hop_latency"]


def test_check_and_predict_know_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_devices"] == 64
    assert main(["predict", str(file), "--samples", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["n_devices"] == 64
    slow, fast = (load_job(file, [f"cluster.network.link_bandwidth={rate} GB/s"]) for rate in (50, 100))
    steps = [predict(job, key=jax.random.key(0), n_samples=64).quantile(0.5) for job in (slow, fast)]
    assert 1.05 * steps[1] < steps[0] < 2.0 * steps[1]


def test_the_step_is_made_of_its_seconds(file: Path) -> None:
    job = load_job(file)
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    message = job.model.boundary_bytes(job.plan) / 4
    hops, correction = 4, job.efficiency.correction  # the second stage begins 32 devices, or 4 rows, further on
    assert cost.p2p_s[0] == pytest.approx(correction.scale_up * hops * (2e-6 + message / 50e9))


def test_memory_does_not_depend_on_it(file: Path) -> None:
    job = load_job(file)
    assert memory(job.model, job.cluster, job.plan) == memory(job.model, catalog.cluster("dgx-h100", 64), job.plan)


def test_search_takes_the_time_that_predict_says(file: Path) -> None:
    job = stated(load_job(file))
    evaluator = Evaluator(job, SPACE)
    checked = 0
    for layout in evaluator.layouts:
        table = SPACE.block(job.plan, layout)
        table = table.take(feasibility(table, evaluator.costs)[0] == FEASIBLE)
        if len(table):
            checked += 1
            own = replace(job, plan=table.plan(len(table) - 1))
            assert evaluator.step_times(table)[-1] == pytest.approx(deterministic(lower(own, True)), rel=2e-6)
    assert checked >= 3


def test_search_finds_a_plan_for_every_size(file: Path) -> None:
    job = load_job(file)
    best = search(job, SPACE, top=1).best
    assert best is not None
    assert best.plan.n_devices == 64
    grown = job.cluster.of_size(96)
    assert (grown.n_devices, grown.fabric) == (96, Torus2D(12, 8, 50e9, 2e-6))


def test_another_library_serves_the_tiers_of_a_preset(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset = ["cluster={preset: dgx-h100, n_devices: 64}"]
    nccl = load_job(file, preset)
    with LIBRARIES.with_item(replace(NCCL, name="slow", network=replace(NCCL.network, reduce_scatter=0.22))) as library:
        slow = load_job(file, [*preset, "cluster.network={kind: tiered, library: slow}"])
        assert main(["show", "networks", "tiered", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fields"] == ["library"]
    assert slow.cluster.fabric == TieredNetwork(nccl.cluster.tiers, "hopper", library)
    same = load_job(file, [*preset, "cluster.network=tiered"])
    assert same.cluster.fabric == nccl.cluster.fabric
    assert deterministic(lower(same)) == deterministic(lower(nccl)) < deterministic(lower(slow))
    assert "must be one of nccl" in mistakes(file, *preset, "cluster.network={kind: tiered, library: slow}")


@dataclass(frozen=True)
class RailOnly(TieredNetwork):
    """Tiers of a cluster whose rails do not meet: a message to another node goes over NVLink first."""

    detour_s: float = 5e-6

    def send_s(self, n_bytes: float, distance: int, stride: int) -> float:
        return super().send_s(n_bytes, distance, stride) + (self.detour_s if distance else 0.0)


def test_a_network_may_be_made_of_the_tiers_of_a_preset(file: Path) -> None:
    with NETWORKS.with_item(NetworkKind("rail_only", RailOnly, "rails that do not meet")):
        changes = ["cluster={preset: dgx-h100, n_devices: 64}", "cluster.network={kind: rail_only, detour: 3 us}"]
        cluster = load_job(file, [*changes, "cluster.tiers={infiniband: {oversubscription: 2}}"]).cluster
    assert isinstance(cluster.fabric, RailOnly)
    assert (cluster.fabric.detour_s, cluster.fabric.tiers[1].oversubscription) == (3e-6, 2.0)
    plain = TieredNetwork(cluster.fabric.tiers, "hopper")
    assert cluster.fabric.send_s(1e6, 1, 8) == pytest.approx(plain.send_s(1e6, 1, 8) + 3e-6)
