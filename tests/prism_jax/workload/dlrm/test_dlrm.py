"""DLRM as a workload: counts, sharding, exchange, memory, commands on a job file, and laws of its tables."""

import csv
import tracemalloc
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import cast

import jax
import numpy as np
import pytest

import prism_jax
from prism_jax.core.errors import ConfigError, SpecError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.step import step_cost
from prism_jax.job.write_job import model_fields
from prism_jax.plan.fields import TableSharding, parse_shard, parse_sharding
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.exhaustive import search
from prism_jax.search.space import default_space
from prism_jax.system.catalog import cluster, device
from prism_jax.workload.base.workload import CompletesPlans, Workload
from prism_jax.workload.catalog import workload
from prism_jax.workload.dlrm.lookup_law import (
    A100,
    V100,
    BandwidthCurve,
    Lookups,
    TableSeconds,
    lookup_law,
    seconds_of_traffic,
    traffic,
)
from prism_jax.workload.dlrm.parts import EVERYWHERE, parts_of
from prism_jax.workload.dlrm.sizes import SizeRule, exchange_bytes
from prism_jax.workload.dlrm.spec import DLRMSpec, held_by_fullest, kernel_of
from prism_jax.workload.dlrm.tables import EmbeddingTable, Histogram, Reuse, Uniform, Zipf, bin_reuse, parse_reuse

DCN, CRITEO = (cast("DLRMSpec", workload(name)) for name in ("dlrm-dcnv2", "dlrm-criteo1tb"))
TABLES = tuple(EmbeddingTable(f"t{i}", 100_000 * (i + 1), 64, float(i + 1)) for i in range(4))
SMALL = DLRMSpec("small", 4, (32, 64), TABLES, (64, 1))
JOB = """
model:
  kind: dlrm
  n_dense: 4
  bottom: [32, 64]
  tables:
    - {name: users, rows: 1000000, dim: 64, pooling: 3, reuse: zipf(1.05)}
    - {name: items, rows: 20000, dim: 64}
  top: [64, 1]
cluster: dgx-h100
plan: {dp: 8, global_batch: 65536, dtype: fp16, tables: {users: "column:2@0,3"}}
software: {cuda_graphs: step}
"""


def plan_of(dp: int = 8, batch: int = 65536, tables: dict[str, str] | None = None) -> ParallelPlan:
    own = parse_sharding(tables) if tables else TableSharding()
    return ParallelPlan(batch // dp, batch, dp=dp, ep=dp, dtype="fp16", tables=own)


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB, encoding="utf-8")
    return file


def test_presets_have_the_published_sizes() -> None:
    assert isinstance(DCN, DLRMSpec)
    assert isinstance(CRITEO, DLRMSpec)
    assert isinstance(DCN, Workload)
    assert isinstance(DCN, CompletesPlans)
    assert sum(table.pooling for table in DCN.tables) == 214  # look-ups of a sample, MLPerf multi-hot
    products = 13 * 512 + 512 * 256 + 256 * 128 + 479 * 1024 + 1024**2 + 1024 * 512 + 512 * 256 + 256
    assert CRITEO.n_dense_params == products + (512 + 256 + 128 + 1024 + 1024 + 512 + 256 + 1)
    assert CRITEO.top_width == 27 * 26 // 2 + 128
    assert CRITEO.n_table_params == pytest.approx(204_184_588 * 128, rel=1e-6)


@pytest.mark.parametrize("written", ["table", "row", "row:4", "column:4", "dp", "hybrid", "table@3", "column:2@0,5"])
def test_sharding_is_read_as_it_is_written(written: str) -> None:
    assert str(parse_shard(written)) == written


@pytest.mark.parametrize("way", ["table", "row", "row:4", "column:4", "dp", "hybrid", "auto"])
def test_parts_hold_every_table_once_and_look_up_every_sample(way: str) -> None:
    written = parse_sharding("auto" if way == "auto" else {table.name: way for table in TABLES})
    parts = parts_of(TABLES, written, 8, 65536)
    copies = np.where(parts.device == EVERYWHERE, 8.0, 1.0)
    own = parts.lookups
    elements = np.bincount(parts.table, own.rows * own.dim, len(TABLES))
    np.testing.assert_allclose(elements, [table.n_params for table in TABLES])
    looked_up = np.bincount(parts.table, copies * own.batch * own.pooling * own.dim, len(TABLES))
    np.testing.assert_allclose(looked_up, [65536 * table.pooling * 64 for table in TABLES])


@pytest.mark.parametrize("reuse", [Uniform(), Zipf(1.15), Histogram((0.2, *(0.05,) * 16))])
@pytest.mark.parametrize(("n_device", "node_size"), [(8, 0), (32, 8)])
def test_a_hybrid_table_copies_the_rows_that_are_read_more_often_than_there_are_nodes(
    reuse: Reuse, n_device: int, node_size: int
) -> None:
    table, batch = EmbeddingTable("t", 4_000_000, 64, 1.0, reuse=reuse), 65_536
    parts = parts_of((table,), TableSharding(usual="hybrid", node_size=node_size), n_device, batch)
    copied = parts.device == EVERYWHERE
    own = parts.lookups
    assert (own.rows * own.dim).sum() == pytest.approx(table.n_params)
    assert (np.where(copied, n_device, 1.0) * own.batch * own.pooling).sum() == pytest.approx(batch)
    least = n_device / max(node_size, 1)
    often = reuse.frequent(table.rows, batch, least)
    assert own.rows[copied].sum() == round(often.rows)
    assert parts.vectors[~copied].sum() == pytest.approx(1.0 - often.share)
    assert often.rows * least <= often.share * batch  # each of them is read more often


def test_copying_frequent_rows_lowers_the_exchange_of_skewed_tables_only() -> None:
    def exchanged(model: DLRMSpec, usual: str) -> float:
        plan = replace(plan_of(), tables=TableSharding(usual=usual))
        return sum(comm.n_bytes for comm in model.block("tables", plan).comms)

    assert exchanged(CRITEO, "hybrid") < 0.3 * exchanged(CRITEO, "auto")
    even = replace(CRITEO, tables=tuple(replace(table, reuse=Uniform()) for table in CRITEO.tables))
    copied = sum(table.rows < 65536 / 8 for table in even.tables)  # all of these are read that often
    assert exchanged(even, "hybrid") == pytest.approx(2.0 * 8192 * (26 - copied) * 128 * 2.0)


def test_named_devices_hold_their_parts() -> None:
    parts = parts_of(TABLES, parse_sharding({"t1": "column:2@0,5", "t3": "table@7"}), 8, 65536)
    assert parts.device[parts.table == 1].tolist() == [0, 5]
    assert parts.device[parts.table == 3].tolist() == [7]


def test_more_devices_balance_better_than_one() -> None:
    seconds = [
        kernel_of(DCN, plan_of(dp, 65536), "F").device_seconds(cluster("dgx-h100", 8).device, 50e6) for dp in (2, 8, 32)
    ]
    assert [len(own) for own in seconds] == [2, 8, 32]
    assert all(own.max() < 2.0 * own.mean() for own in seconds)
    assert seconds[0].max() > 2.5 * seconds[1].max() > 4.0 * seconds[2].max()


def test_lookups_of_thousands_of_devices_take_memory_by_parts() -> None:
    """Every device holds a part of every table in rows, and the copies; an array of all devices by all parts has 0.5 GB."""
    kernel = kernel_of(SMALL, plan_of(1 << 13, 1 << 17, {"t0": "dp"} | {f"t{i}": "row" for i in (1, 2, 3)}), "F")
    assert len(kernel.parts.device) == 1 + 3 * (1 << 13)
    tracemalloc.start()
    seconds = kernel.device_seconds(device("h100-sxm"), 50e6)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1e8
    part_s = kernel.part_seconds(device("h100-sxm"), 50e6).forward_dram_s
    at = kernel.parts.device
    busy = [part_s[(at == own) | (at == EVERYWHERE)].sum() for own in (0, 4096, 8191)]
    start_s = lookup_law(device("h100-sxm"), 50e6).start_s
    np.testing.assert_allclose(seconds[[0, 4096, 8191]], np.array(busy) + start_s, rtol=1e-12)


def test_the_exchange_follows_the_largest_sender() -> None:
    """Everything on device 0: it sends all pooled vectors, the others only receive."""
    plan = plan_of(tables={table.name: "table@0" for table in TABLES})
    forward, backward = SMALL.block("tables", plan).comms
    own = np.array([65536 / 8 * 4 * 64 * 2.0] + [0.0] * 7)
    assert forward.n_bytes == backward.n_bytes == float(exchange_bytes(own))
    assert (forward.axis, forward.kind, forward.size) == ("ep", "all_to_all", 8)


def test_rows_over_all_devices_are_reduced_and_scattered() -> None:
    comms = SMALL.block("tables", plan_of(tables={table.name: "row" for table in TABLES[1:]} | {"t0": "dp"})).comms
    assert [comm.kind for comm in comms] == ["reduce_scatter", "all_gather"]
    # partial sums of three tables; of a device, before they are reduced
    assert comms[0].n_bytes == 65536 * 3 * 64 * 2.0


def test_sums_of_a_node_cross_the_network_once() -> None:
    """A table in rows over one of two nodes: inside, eight partial sums of every sample; between nodes, one."""
    plan = plan_of(16, 65536, {table.name: "dp" for table in TABLES[:3]} | {"t3": "row:8@0,1,2,3,4,5,6,7"})
    plan = SMALL.completed(plan, 8)
    forward = [comm for comm in SMALL.block("tables", plan).comms if comm.phase == "F"]
    assert [(comm.size, comm.stride) for comm in forward] == [(8, 1), (2, 8)]
    vector = 65536 * 64 * 2.0
    assert forward[0].n_bytes == vector  # what one device has for the eight, itself included
    assert forward[1].n_bytes == vector / 8  # of the node's one sum a device sends an eighth


def test_rows_stay_in_as_few_nodes_as_hold_them() -> None:
    parts = parts_of(TABLES, replace(parse_sharding({"t3": "row:8", "t2": "row:4"}), node_size=8), 32, 65536)
    assert len(set((parts.device[parts.table == 3] // 8).tolist())) == 1
    assert len(set((parts.device[parts.table == 2] // 8).tolist())) == 1


def test_inputs_are_copied_before_the_step_unless_they_are_prefetched() -> None:
    own = replace(SMALL, prefetch=False).block("tables", plan_of()).kernels.ops[-1]
    assert own.law is not None
    n_bytes = 8192 * (8.0 * 10.0 + 4.0 * 5.0)  # ten indices, four features and a label
    assert own.law.seconds(cluster("dgx-a100", 8).device, 40e6) == 10e-6 + n_bytes / 25e9
    assert all(kernel.name != own.name for kernel in SMALL.block("tables", plan_of()).kernels.ops)


def test_memory_is_that_of_the_fullest_device() -> None:
    written = {"t0": "table@0", "t1": "table@1", "t2": "table@2", "t3": "table@0"}
    held = held_by_fullest(replace(SMALL, optimizer="adagrad"), plan_of(tables=written))
    assert held.n_params == (100_000 + 400_000) * 64
    assert held.element_bytes == 8.0


def test_one_batch_costs_less_per_sample_on_more_devices() -> None:
    eff = efficiency("hopper")
    found = []
    for n in (8, 64):
        plan = DCN.completed(plan_of(n, 135168), 8)
        cost = step_cost(DCN, cluster("dgx-h100", n), plan, eff)
        found.append(cost.compute_s.sum() + cost.comm_s.sum())
    assert found[1] < 0.5 * found[0]


def test_all_ranks_step_together(job_file: Path) -> None:
    job = prism_jax.load_job(job_file)
    assert (job.plan.micro_batch, job.plan.ep) == (8192, 8)
    assert (job.plan.n_member, job.plan.n_replica) == (8, 1)
    other = replace(job, plan=replace(job.plan, dp=4, micro_batch=16384), cluster=job.cluster.of_size(4))
    assert (other.plan.ep, other.plan.n_replica) == (4, 1)


def test_a_job_file_says_what_the_objects_are(job_file: Path) -> None:
    job = prism_jax.load_job(job_file)
    assert isinstance(job.model, DLRMSpec)
    assert job.model.tables[0].reuse.written == "zipf(1.05)"
    assert job.plan.tables.written == {"users": "column:2@0,3"}
    assert model_fields(job.model)["tables"][0] == {
        "name": "users", "rows": 1_000_000, "dim": 64, "pooling": 3.0, "reuse": "zipf(1.05)"
    }  # fmt: skip


def test_predict_counts_samples(job_file: Path) -> None:
    job = prism_jax.load_job(job_file)
    step = prism_jax.predict(job, key=jax.random.key(0), n_samples=128)
    assert 0.0 < step.quantile(0.5) < step.quantile(0.95)
    assert job.model.units_per_step(job.plan) == 65536
    assert job.memory.stages[0].parameters_bytes > 4 * 500_000 * 64


def test_search_keeps_all_ranks_together(job_file: Path) -> None:
    job = prism_jax.load_job(job_file)
    space = default_space(job)
    assert (space.ep, space.tp, space.pp, space.recompute) == ((8,), (1,), (1,), ("none",))
    best = search(job, space=space, seed=0).best
    assert best is not None
    assert best.plan.ep == best.plan.dp == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("plan.pp=2", "is not cut into stages. Use pp=1"),
        ("plan.recompute=full", "keeps its activations"),
        ("plan.zero_stage=1", "are not sharded"),
        ("plan.tables={rows: row}", "'rows', but dlrm model has users, items"),
        ("plan.tables={users: table@8}", "there are devices 0 to 7"),
        ("plan.tables={users: columns}", "must be table, row, row:4"),
        ("plan.tables=[users]", "must be auto, hybrid, or a mapping"),
        ("model.tables=[{name: a, rows: 5, dim: 4, reuse: often}]", "must be uniform, zipf"),
        ("model.tables=[]", "at least one embedding table"),
        ("model.interaction=cross", "must be one of dot, cat, dcn"),
    ],
)
def test_what_contradicts_it_is_refused(job_file: Path, change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        prism_jax.load_job(job_file, [change])


def test_there_is_no_deeper_one() -> None:
    with pytest.raises(SpecError, match="no deeper variant"):
        DCN.deeper(1)


# --- Embedding tables: rows that are read again, and seconds of a lookup ---------------------------------------------


MEASURED = Path("../shared/data/nonllm/meta_embedding_reuse.csv")
ALL = (Uniform(), Zipf(0.0), Zipf(0.7), Zipf(1.0), Zipf(1.3), Histogram((0.1,) * 10 + (0.0,) * 7))


def lru_hits(rows: np.ndarray, room: int) -> float:
    """Share of hits of a least-recently-used cache that starts empty."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in rows.tolist():
        if row in held:
            hits += 1
            held.move_to_end(row)
        else:
            held[row] = None
            if len(held) > room:
                held.popitem(last=False)
    return hits / len(rows)


@pytest.mark.parametrize("reuse", ALL)
def test_with_room_for_all_every_second_lookup_of_a_row_is_a_hit(reuse: Reuse) -> None:
    unique = reuse.unique_rows(1e5, 3e5)
    assert reuse.hit_rate(1e5, 3e5, 1e5) == pytest.approx(1.0 - unique / 3e5, abs=1e-9)


@pytest.mark.parametrize("reuse", ALL)
def test_hits_grow_with_the_cache_and_stay_shares(reuse: Reuse) -> None:
    hits = [reuse.hit_rate(1e5, 3e5, room) for room in (0.0, 10.0, 1e3, 1e4, 5e4, 1e5)]
    assert all(0.0 <= one <= 1.0 for one in hits)
    assert hits == sorted(hits)


def test_uniform_is_the_closed_form() -> None:
    assert Uniform().unique_rows(10.0, 5.0) == pytest.approx(10.0 * (1.0 - 0.9**5))
    assert Uniform().unique_rows(1.0, 5.0) == 1.0
    assert Uniform().hit_rate(1e6, 1e6, 1e5) == pytest.approx(1.0 - (1e5 + 9e5 * 0.9) / 1e6)


def test_zipf_without_skew_reads_as_many_rows_as_uniform() -> None:
    assert Zipf(0.0).unique_rows(1e6, 1e6) == pytest.approx(Uniform().unique_rows(1e6, 1e6), rel=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_zipf_agrees_with_draws_through_a_cache(exponent: float) -> None:
    rows, n_lookups, room = 20_000, 40_000, 1_500
    prob = np.arange(1, rows + 1) ** -exponent
    drawn = np.random.default_rng(3).choice(rows, n_lookups, p=prob / prob.sum())
    assert Zipf(exponent).unique_rows(rows, n_lookups) == pytest.approx(len(np.unique(drawn)), rel=0.02)
    assert Zipf(exponent).hit_rate(rows, n_lookups, room) == pytest.approx(lru_hits(drawn, room), abs=0.01)


def test_histogram_agrees_with_draws_through_a_cache() -> None:
    counts = np.repeat([1, 2, 3, 4, 11], [4000, 2000, 500, 500, 300])
    drawn = np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts))
    shares = np.zeros(17)
    for bin_, low, high in ((0, 1, 1), (1, 2, 2), (2, 3, 4), (4, 9, 16)):
        shares[bin_] = counts[(counts >= low) & (counts <= high)].sum() / counts.sum()
    own = Histogram(tuple(shares))
    # of a bin the mean reuse is assumed
    assert own.unique_rows(1e9, len(drawn)) == pytest.approx(len(counts), rel=0.06)
    assert own.hit_rate(1e9, len(drawn), 1000) == pytest.approx(lru_hits(drawn, 1000), abs=0.03)


def test_histogram_reproduces_the_unique_rows_of_production_tables() -> None:
    if not MEASURED.exists():
        pytest.skip("measured reuse is not at hand")
    files: dict[str, dict[str, list[dict[str, str]]]] = {}
    with MEASURED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            files.setdefault(row["file"], {}).setdefault(row["kind"], []).append(row)
    for kinds in files.values():
        lookups = kinds["fraction_of_lookups"]
        own = Histogram(tuple(float(row["frac"]) for row in lookups))
        indices, unique = float(lookups[0]["indices"]), float(lookups[0]["unique_rows"])
        assert own.unique_rows(1e18, indices) == pytest.approx(unique, rel=0.03)
        shares = own.shares / bin_reuse() / (own.shares / bin_reuse()).sum()
        stated = [float(row["frac"]) for row in kinds["fraction_of_unique_rows"]]
        np.testing.assert_allclose(shares, stated, atol=0.015)


@pytest.mark.parametrize("exponent", [0.8, 1.15])
@pytest.mark.parametrize("least", [4.0, 40.0])
def test_frequent_rows_and_the_others_make_up_the_law(exponent: float, least: float) -> None:
    rows, n = 50_000, 100_000
    prob = np.arange(1, rows + 1) ** -exponent
    prob /= prob.sum()
    found = Zipf(exponent).frequent(rows, n, least)
    assert found.rows == pytest.approx((n * prob > least).sum(), rel=0.05)
    assert found.share == pytest.approx(prob[n * prob > least].sum(), rel=0.01)
    own = found.own.unique_rows(found.rows, found.share * n)
    rest = found.rest.unique_rows(rows - found.rows, (1.0 - found.share) * n)
    assert own + rest == pytest.approx(Zipf(exponent).unique_rows(rows, n), rel=0.01)


def test_a_histogram_is_parted_by_how_often_its_rows_are_read() -> None:
    found = Histogram((0.4, 0.2, 0.1, 0.1, 0.1, 0.1, *(0.0,) * 11)).frequent(1e9, 1e6, 5.0)
    assert found.share == pytest.approx(0.3)
    assert found.own == Histogram((0.0, 0.0, 0.0, 0.1, 0.1, 0.1, *(0.0,) * 11))
    assert found.rows == pytest.approx(sum(1e5 / bin_reuse()[3:6]))


def test_evenly_read_rows_are_all_frequent_or_none() -> None:
    assert Uniform().frequent(1000.0, 9000.0, 8.0)[:2] == (1000.0, 1.0)
    assert Uniform().frequent(1000.0, 7000.0, 8.0)[:2] == (0.0, 0.0)


def test_texts_of_job_files() -> None:
    assert parse_reuse("uniform") == Uniform()
    assert parse_reuse("zipf(1.05)") == Zipf(1.05)
    assert parse_reuse(Zipf(1.05, 40.0).written) == Zipf(1.05, 40.0)
    with pytest.raises(SpecError, match=r"must be uniform, zipf\(a\)"):
        parse_reuse("zipf")
    with pytest.raises(SpecError, match="17 are needed"):
        Histogram((1.0,))


# --- Seconds of embedding tables: additive, by bytes, monotone; exchange sizes by three rules ------------------------


TWO_TABLES = tuple(
    EmbeddingTable(f"t{i}", rows, 128, pooling) for i, (rows, pooling) in enumerate([(10**7, 10.0), (500, 1.0)])
)


def seconds(
    tables: tuple[EmbeddingTable, ...] = TWO_TABLES, batch: float = 65536, optimizer: str = "sgd"
) -> TableSeconds:
    law = lookup_law(device("a100-40gb"), 40e6)
    rows, dim, pooling, element_bytes = (
        np.array([getattr(table, name) for table in tables], dtype=float)
        for name in ("rows", "dim", "pooling", "element_bytes")
    )
    batches = np.full(len(tables), float(batch))
    lookups = Lookups(rows, dim, pooling, batches, element_bytes, tuple(table.reuse for table in tables))
    return seconds_of_traffic(traffic(lookups, law, optimizer, 4.0), law)


def test_a_table_costs_the_same_beside_others() -> None:
    both, alone = seconds(), seconds(TWO_TABLES[:1])
    assert both.forward_s[0] == alone.forward_s[0]
    assert both.backward_s[0] == alone.backward_s[0]


def test_rows_that_nothing_repeats_are_read_from_memory() -> None:
    """10^7 rows of 512 bytes, ten each of 65,536 samples: by far most of the bytes are rows, at the measured bandwidth."""
    own = seconds()
    rows_s = 65536 * 10 * 512 / 1391.1e9
    assert rows_s < own.forward_s[0] < 1.25 * rows_s
    assert own.traffic.hit_rate[0] < 0.05
    assert own.traffic.hit_rate[1] > 0.95


def test_half_the_columns_are_about_half_the_time() -> None:
    half = tuple(replace(table, dim=64) for table in TWO_TABLES[:1])
    assert seconds(half).forward_s[0] / seconds().forward_s[0] == pytest.approx(0.55, abs=0.05)  # 1.1 for narrow rows


def test_state_of_the_optimizer_costs_time_and_memory() -> None:
    found = [seconds(optimizer=name) for name in ("sgd", "rowwise_adagrad", "adagrad")]
    backward = [own.backward_s[0] for own in found]
    assert backward == sorted(backward)
    held = [own.traffic.held_bytes[0] / (4 * TWO_TABLES[0].n_params) for own in found]
    assert held == pytest.approx([1.0, 1.0 + 1 / 128, 2.0])
    with pytest.raises(SpecError, match="'adam', but it must be one of sgd"):
        seconds(optimizer="adam")


@pytest.mark.parametrize("curve", [V100, A100])
def test_curves_rise_from_their_start_to_their_bandwidth(curve: BandwidthCurve) -> None:
    size = 2.0 ** np.arange(0.0, 36.0, 0.25)
    time_s = curve.seconds(size)
    assert time_s[0] == curve.start_s
    assert (size / time_s)[-1] == pytest.approx(curve.full_bytes_per_s, rel=1e-3)
    assert (np.diff(time_s) > -0.06 * time_s[:-1]).all()  # the published pieces do not meet exactly
    assert curve.seconds(0.0) == 0.0


def test_another_device_keeps_latencies_and_scales_bandwidth() -> None:
    law, own = lookup_law(device("h100-sxm"), 50e6), lookup_law(device("a100-40gb"), 40e6)
    assert law.seconds(1.0, 0.0) == own.seconds(1.0, 0.0)
    assert law.seconds(1e11, 0.0) / own.seconds(1e11, 0.0) == pytest.approx(1555 / 3350, rel=1e-3)


def test_size_rules_agree_where_devices_are_alike_and_order_where_not() -> None:
    even = np.full(4, 3.0)
    assert [float(exchange_bytes(even, rule)) for rule in SizeRule] == pytest.approx([12.0] * 3)
    uneven = np.array([9.0, 1.0, 1.0, 1.0])  # sends 27 and receives 3; the others send 3 and receive 11
    found = {rule: float(exchange_bytes(uneven, rule)) * 3 / 4 for rule in SizeRule}
    assert found == {SizeRule.MAX_OF_MAX: 27.0, SizeRule.MAX_OF_SUM: 15.0, SizeRule.SUM: 9.0}
    assert exchange_bytes(np.stack([even, uneven])).shape == (2,)
    assert float(exchange_bytes(np.array([5.0]))) == 5.0
