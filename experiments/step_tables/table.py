"""Tables of published steps: measured step times of real training jobs as rows with model, cluster and plan.

Rows that cannot be turned into a job stay in the list and say why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.step_tables.assumed import (
    Peers,
    completed,
    fill_virtual_stages,
    peers_of,
    rates_disagree,
    with_usual_micro_batch,
)
from experiments.step_tables.cluster import cluster_of_record, defect_of_record, is_of_known_machine, slower_than_peers
from experiments.step_tables.encoders import encoder_of_record, trains_encoder, with_gradients_behind, with_recipe
from experiments.step_tables.model import trained_model
from experiments.step_tables.plan import framework_of_record, open_recompute, plan_of_record
from experiments.step_tables.records import (
    NO_NUMBER,
    OTHER_KINDS,
    WHAT,
    Assumption,
    StepRecord,
    UnsupportedRowError,
    records_of,
    refuse_other_kinds,
)
from experiments.step_tables.samples import (
    benchmark_of_record,
    is_samples_table,
    measured_s_of,
    plan_of_samples,
    sample_records,
)
from prism_jax.calibration.open_fields import (
    IMBALANCE,
    NETWORK,
    USUAL_NETWORK,
    USUAL_ROUTING,
    VIRTUAL_STAGES,
    Odds,
    imbalance_of,
    usual_dtypes,
    usual_virtual_stages,
)
from prism_jax.core.errors import PrismError
from prism_jax.cost.partition import layers_of_chunks
from prism_jax.framework.frameworks import framework_of
from prism_jax.framework.software import VENDOR
from prism_jax.job.rules import MAX_CHUNK_RUNS, check_plan
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.hardware import RATE_OF, Cluster
from prism_jax.tables.csv_rows import CsvTable, read_packed_text
from prism_jax.tables.document import short
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.base.workload import Workload, completed_plan, n_body
from prism_jax.workload.transformer.spec import TransformerSpec

# Sources whose TFLOP/s count the recomputed forward pass. OPT-175B does not say, but its chronicles do (metaseq, 2021-11-17): 33
# days for 300e9 tokens on 1,024 devices are 114 TFLOP/s without it and 152 with it, next to the 147 that its paper states.
_HARDWARE_FLOPS = (
    "bigscience", "2104.04473", "Megatron-LM", "2201.11990", "Azure", "FSDP on AWS", "argonne", "libai", "GLM", "ColossalAI",
    "2205.01068",
)  # fmt: skip
_CAUSAL_FLOPS = re.compile(r"FLOPs with causal attention", re.IGNORECASE)  # others count the whole square of scores

# Load of the busiest rank over the mean under a router that learns and no capacity: with a loss that balances 1.0 to 1.5, without
# one whatever a gate likes. Judgement, chosen in sight of the rows that state real routing.
REAL_ROUTING: Odds = ((1.0, 0.3), (1.5, 0.35), (2.5, 0.2), (4.0, 0.15))
# Of a pipeline that states none: one sequence keeps it busy, larger ones fill the devices. Judgement.
_MICRO_BATCHES = ((1, 0.6), (2, 0.25), (4, 0.15))


@dataclass(frozen=True)
class SupportCount:
    """How many rows became jobs, and why the others did not.

    Attributes:
        n_transformer: rows that train a decoder-only transformer, or adapters of one, on the accelerators and state a number to
            compare with: all but those refused for one of `records.OTHER_KINDS`.
    """

    n: int
    n_supported: int
    n_transformer: int
    by_reason: dict[str, int]

    @property
    def share(self) -> float:
        """Supported over all rows."""
        return self.n_supported / self.n

    @property
    def share_of_transformers(self) -> float:
        """Supported over transformer rows; 1 if there are none."""
        return self.n_supported / self.n_transformer if self.n_transformer else 1.0


def read_step_rows(path: str | Path) -> list[MeasuredRow]:
    """Rows of a table of published steps in any of its schemas; JSON or CSV, gzipped or not, by content.

    Raises:
        DataError: the file cannot be read or a row is malformed; names row and field.
    """
    file = Path(path)
    return step_rows_of(read_packed_text(file, WHAT), file.name)


def step_rows_of(text: str, name: str) -> list[MeasuredRow]:
    """Rows of a steps table whose text is at hand; `name` is what messages call it.

    Raises:
        DataError: a row is malformed; names row and field.
    """
    if (samples := _samples_table(text, name)) is not None:
        return [_sample_row(record) for record in sample_records(samples)]
    records = records_of(text, name)
    used = [record for record in records if not _left_out(record)]
    filled = fill_virtual_stages(used)
    slow, peers = slower_than_peers(filled), peers_of(filled)
    rows = iter([_row(record, slow.get(record.id, ""), peers) for record in filled])
    return [
        MeasuredRow(record.id, record.source, record.measured_s, unsupported=reason)
        if (reason := _left_out(record))
        else next(rows)
        for record in records
    ]


def _samples_table(text: str, name: str) -> CsvTable | None:
    """The table if its columns state samples per second of benchmarks; None for other tables."""
    if text.lstrip()[:1] in ("[", "{"):
        return None
    table = CsvTable(text, name)
    return table if is_samples_table(table.columns) else None


def _left_out(record: StepRecord) -> str:
    """Why a row is not looked at further; empty for all others."""
    if record.same_as:
        return "the same row as one above"
    return f"beyond what is simulated: {found}" if (found := record.beyond()) else ""


def count_support(rows: Iterable[MeasuredRow]) -> SupportCount:
    """Supported rows, and the others by reason, most frequent first."""
    reasons = Counter(row.unsupported for row in rows)
    n_supported = reasons.pop("", 0)
    n = n_supported + reasons.total()
    n_transformer = n - sum(reasons[kind] for kind in OTHER_KINDS)
    return SupportCount(n, n_supported, n_transformer, dict(reasons.most_common()))


def _row(record: StepRecord, beside_peers: str, peers: Peers) -> MeasuredRow:
    """The row of a record; `beside_peers` is what its peers say of its fabric, `peers` what it may take over from them."""
    known = MeasuredRow(
        record.id,
        record.source,
        record.measured_s,
        record.measured_range,
        defect=defect_of_record(record, beside_peers=beside_peers),
        framework=framework_of_record(record),
    )
    return _or_refused(known, lambda: _with_job(known, record, beside_peers, peers))


def _or_refused(known: MeasuredRow, with_job: Callable[[], MeasuredRow]) -> MeasuredRow:
    """The row with its job, or with the reason why there is none."""
    try:
        return with_job()
    except UnsupportedRowError as reason:
        return replace(known, unsupported=str(reason))
    except PrismError as error:
        return replace(known, unsupported=f"impossible: {error}")


def _sample_row(record: StepRecord) -> MeasuredRow:
    """The row of a record that states samples per second of a benchmark."""
    known = MeasuredRow(record.id, record.source, record.measured_s)
    if reason := _left_out(record):
        return replace(known, unsupported=reason)

    def with_job() -> MeasuredRow:
        benchmark, model = benchmark_of_record(record)
        cluster = cluster_of_record(record)
        plan = completed_plan(model, plan_of_samples(record, benchmark, cluster), cluster.node_size)
        check_plan(plan, model, cluster)
        return replace(
            known,
            measured_s=measured_s_of(record, plan),
            model=model,
            cluster=cluster,
            plan=plan,
            framework=benchmark.framework,
        )

    return _or_refused(known, with_job)


def _with_encoder(known: MeasuredRow, record: StepRecord) -> MeasuredRow:
    """The row with its job, an encoder or an encoder-decoder; what it leaves blank is what the recipe of its source says."""
    refuse_other_kinds(record, is_encoder=True)
    record, assumed = with_recipe(record)
    cluster, model = cluster_of_record(record), encoder_of_record(record)
    plan = with_gradients_behind(record, plan_of_record(record))
    measured_s = _measured_s(record, model, plan)
    _check(model, cluster, plan)
    return replace(known, measured_s=measured_s, model=model, cluster=cluster, plan=plan, assumed=assumed)


def _with_job(known: MeasuredRow, record: StepRecord, beside_peers: str, peers: Peers) -> MeasuredRow:
    if trains_encoder(record):
        return _with_encoder(known, record)
    refuse_other_kinds(record)
    record, by_recipe = with_recipe(record)
    record, assumed = completed(record, peers)
    assumed = (*_unknown_framework(record, known.framework), *by_recipe, *assumed)
    cluster, plan = cluster_of_record(record), plan_of_record(record)
    model = trained_model(record)
    plan = with_usual_micro_batch(record, model, cluster, plan, known.framework)
    split = framework_of(known.framework).layer_split
    if split is not None and not plan.layer_split:
        plan = replace(plan, layer_split=split(model, plan.pp))
    measured_s = _measured_s(record, model, plan)
    _check(model, cluster, plan)
    defect = defect_of_record(record, cluster, beside_peers) or (rates_disagree(record, model) if assumed else "")
    open_plan = tuple((field, odds) for field, odds in open_of_record(record, model, cluster, plan) if len(odds) > 1)
    return replace(
        known,
        measured_s=measured_s,
        model=model,
        cluster=cluster,
        plan=plan,
        defect=defect,
        assumed=assumed,
        open_plan=open_plan,
    )


def _unknown_framework(record: StepRecord, framework: str) -> tuple[Assumption, ...]:
    """What software is taken for that the row names and that is none of ours."""
    if framework or not record.framework:
        return ()
    return (Assumption("framework", "plain PyTorch", f"{short(record.framework)} is not known"),)


def usual_micro_batches(plan: ParallelPlan) -> Odds:
    """Sequences of a micro-batch, in multiples of the plan's, that its batch and its pipeline allow."""
    share = plan.global_batch // plan.dp
    given = [(plan.micro_batch * factor, odds) for factor, odds in _MICRO_BATCHES]
    able = [(n, odds) for n, odds in given if share % n == 0 and share // n >= (plan.pp if plan.pp > 1 else 1)]
    whole = sum(odds for _, odds in able)
    return tuple((n, odds / whole) for n, odds in able)


def open_of_record(
    record: StepRecord, model: Workload, cluster: Cluster, plan: ParallelPlan
) -> Iterator[tuple[str, Odds]]:
    """Fields of plan and cluster that the row does not state, with the odds of what they may be."""
    by_vendor = (
        plan.software.tuning == VENDOR
    )  # on its reference design, with forced routing, unless a column says otherwise
    if not record.precision and "fp32 by default" not in record.notes:
        yield "dtype", usual_dtypes(cluster.device, plan.software.tuning)
    yield "recompute", open_recompute(record)
    if record.micro_batch is None and not record.gpu.lower().startswith("tpu"):
        yield "micro_batch", usual_micro_batches(plan)
    if imbalance_of(model) is not None and (record.routing == "real" or not (record.routing or by_vendor)):
        yield IMBALANCE, REAL_ROUTING if record.routing else USUAL_ROUTING
    if "not listed" in record.schedule and record.vpp is None:
        yield VIRTUAL_STAGES, usual_virtual_stages(n_body(model), plan)
    says_none = record.fabric_stated == "no" if record.fabric_stated else not (record.network or by_vendor)
    if says_none and not is_of_known_machine(record) and plan.n_devices > cluster.node_size and len(cluster.tiers) > 1:
        yield NETWORK, USUAL_NETWORK


def _check(model: Workload, cluster: Cluster, plan: ParallelPlan) -> None:
    n_layers = n_body(model)
    layers_of_chunks(n_layers, plan)
    if RATE_OF.get(plan.dtype, plan.dtype) not in cluster.device.peak_flops_per_s:
        raise UnsupportedRowError(f"device has no {plan.dtype}")
    if plan.n_chunk > n_layers + 2:
        raise UnsupportedRowError("more model chunks than layers")
    if plan.n_micro_batch * plan.n_chunk > MAX_CHUNK_RUNS:
        raise UnsupportedRowError("too many micro-batches to simulate")
    check_plan(plan, model, cluster)


def _measured_s(record: StepRecord, model: Workload, plan: ParallelPlan) -> float:
    """As published; else from tokens/s per GPU; else from TFLOP/s per GPU in the source's own convention."""
    if record.measured_s:
        return record.measured_s
    tokens = plan.global_batch * plan.seq_len
    if record.tokens_per_s_per_gpu:
        return tokens / (record.tokens_per_s_per_gpu * plan.n_devices)
    if record.tflops_per_gpu:
        counts_recompute = any(name in record.source for name in _HARDWARE_FLOPS)
        recompute = plan.recompute if counts_recompute else "none"
        if isinstance(model, TransformerSpec):
            causal = bool(_CAUSAL_FLOPS.search(record.notes))
            flops = tokens * model.train_flops_per_token(plan.seq_len, causal, recompute)
        else:
            flops = model.step_flops(plan, recomputed=counts_recompute)
        return flops / (record.tflops_per_gpu * 1e12 * plan.n_devices)
    raise UnsupportedRowError(NO_NUMBER)
