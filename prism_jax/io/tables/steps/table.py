"""Steps tables: measured step times of real training jobs as (model, cluster, plan) triples, seconds per optimizer step.

Rows that cannot be turned into a job stay in the list and say why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ....errors import DataError, PrismError
from ....framework import framework_of
from ....partition.chunks import layers_of_chunks
from ....plan.plan import ParallelPlan
from ....rules.arithmetic import MAX_CHUNK_RUNS
from ....rules.check import check_plan
from ....software.usual import Odds, usual_dtypes
from ....system.hardware import RATE_OF, Cluster
from ....workload.base import Workload, completed_plan, n_body
from ....workload.transformer.spec import TransformerSpec
from ..csv_rows import CsvTable
from ..job_table import MeasuredRun, is_job_table, read_job_table
from ..packed import read_packed_text
from .assumed import Assumption, Peers, completed, peers_of, rates_disagree
from .assumed.micro_batch import with_usual_micro_batch
from .cluster import cluster_of_record
from .defect import defect_of_record
from .encoders.model import encoder_of_record, trains_encoder
from .encoders.recipes import with_gradients_behind, with_recipe
from .features.trained import trained_model
from .framework import framework_of_record
from .kind import NO_NUMBER, OTHER_KINDS, UnsupportedRowError, refuse_other_kinds
from .peers import slower_than_peers
from .plan import plan_of_record
from .recompute import open_recompute
from .record import WHAT, StepRecord, records_of
from .samples.jobs import benchmark_of_record, measured_s_of, plan_of_samples
from .samples.record import is_samples_table, sample_records
from .siblings import fill_virtual_stages

# Sources whose TFLOP/s count the recomputed forward pass.
_HARDWARE_FLOPS = (
    "bigscience", "2104.04473", "Megatron-LM", "2201.11990", "Azure", "FSDP on AWS", "argonne", "libai", "GLM", "ColossalAI",
)  # fmt: skip


@dataclass(frozen=True)
class StepRow:
    """One measured configuration.

    Attributes:
        measured_s: seconds per step, as published or derived; None where neither is possible.
        measured_range: lowest and highest value that unstated conventions leave.
        unsupported: why there is no job; empty when model, cluster and plan are given.
        defect: what is known to be wrong with the row, in words; empty if nothing is.
        open_plan: fields of the plan that nothing states, with the odds of what they may be; the plan holds the likeliest.
        framework: training software it ran on, a name in `framework.FRAMEWORKS`; empty if unknown.
        assumed: what the row does not state and is taken for; empty for a row that states its job.
    """

    id: str
    source: str
    measured_s: float | None
    measured_range: tuple[float, float] | None = None
    model: Workload | None = None
    cluster: Cluster | None = None
    plan: ParallelPlan | None = None
    unsupported: str = ""
    defect: str = ""
    framework: str = ""
    open_plan: tuple[tuple[str, Odds], ...] = ()
    assumed: tuple[Assumption, ...] = ()

    @property
    def job(self) -> tuple[Workload, Cluster, ParallelPlan]:
        """The triple of a supported row.

        Raises:
            DataError: the row is unsupported.
        """
        if self.model is None or self.cluster is None or self.plan is None:
            raise DataError(f"row {self.id} cannot be simulated: {self.unsupported}")
        return self.model, self.cluster, self.plan


@dataclass(frozen=True)
class SupportCount:
    """How many rows became jobs, and why the others did not.

    Attributes:
        n_transformer: rows that train a decoder-only transformer, or adapters of one, on the accelerators and state a number to
            compare with: all but those refused for one of `kind.OTHER_KINDS`.
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


def read_step_rows(path: str | Path) -> list[StepRow]:
    """Rows of a steps table in either schema, or of a table of jobs; JSON or CSV, gzipped or not, by content.

    Raises:
        DataError: the file cannot be read or a row is malformed; names row and field.
    """
    file = Path(path)
    text = read_packed_text(file, WHAT)
    if is_job_table(text):
        return [_of_run(run, file.name) for run in read_job_table(file, text)]
    return step_rows_of(text, file.name)


def step_rows_of(text: str, name: str) -> list[StepRow]:
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
        StepRow(record.id, record.source, record.measured_s, unsupported=reason)
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


def count_support(rows: Iterable[StepRow]) -> SupportCount:
    """Supported rows, and the others by reason, most frequent first."""
    reasons = Counter(row.unsupported for row in rows)
    n_supported = reasons.pop("", 0)
    n = n_supported + reasons.total()
    n_transformer = n - sum(reasons[kind] for kind in OTHER_KINDS)
    return SupportCount(n, n_supported, n_transformer, dict(reasons.most_common()))


def _of_run(run: MeasuredRun, source: str) -> StepRow:
    """A measured job as a row of the table it is from; its variability is that of its device."""
    job = run.job
    return StepRow(run.id, source, run.measured_s, None, job.model, job.cluster, job.plan, framework=job.software.name)


def _row(record: StepRecord, beside_peers: str, peers: Peers) -> StepRow:
    """The row of a record; `beside_peers` is what its peers say of its fabric, `peers` what it may take over from them."""
    known = StepRow(
        record.id,
        record.source,
        record.measured_s,
        record.measured_range,
        defect=defect_of_record(record, beside_peers=beside_peers),
        framework=framework_of_record(record),
    )
    return _or_refused(known, lambda: _with_job(known, record, beside_peers, peers))


def _or_refused(known: StepRow, with_job: Callable[[], StepRow]) -> StepRow:
    """The row with its job, or with the reason why there is none."""
    try:
        return with_job()
    except UnsupportedRowError as reason:
        return replace(known, unsupported=str(reason))
    except PrismError as error:
        return replace(known, unsupported=f"impossible: {error}")


def _sample_row(record: StepRecord) -> StepRow:
    """The row of a record that states samples per second of a benchmark."""
    known = StepRow(record.id, record.source, record.measured_s)
    if reason := _left_out(record):
        return replace(known, unsupported=reason)

    def with_job() -> StepRow:
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


def _with_encoder(known: StepRow, record: StepRecord) -> StepRow:
    """The row with its job, an encoder or an encoder-decoder; what it leaves blank is what the recipe of its source says."""
    refuse_other_kinds(record, is_encoder=True)
    record, assumed = with_recipe(record)
    cluster, model = cluster_of_record(record), encoder_of_record(record)
    plan = with_gradients_behind(record, plan_of_record(record))
    measured_s = _measured_s(record, model, plan)
    _check(model, cluster, plan)
    return replace(known, measured_s=measured_s, model=model, cluster=cluster, plan=plan, assumed=assumed)


def _with_job(known: StepRow, record: StepRecord, beside_peers: str, peers: Peers) -> StepRow:
    if trains_encoder(record):
        return _with_encoder(known, record)
    refuse_other_kinds(record)
    record, assumed = completed(record, peers)
    cluster, plan = cluster_of_record(record), plan_of_record(record)
    model = trained_model(record)
    plan = with_usual_micro_batch(record, model, cluster, plan, known.framework)
    split = framework_of(known.framework).layer_split
    if split is not None and not plan.layer_split:
        plan = replace(plan, layer_split=split(model, plan.pp))
    measured_s = _measured_s(record, model, plan)
    _check(model, cluster, plan)
    defect = defect_of_record(record, cluster, beside_peers) or (rates_disagree(record, model) if assumed else "")
    is_open = not record.precision and "fp32 by default" not in record.notes
    open_dtype = usual_dtypes(cluster.device, plan.software.tuning) if is_open else ()
    asked = (("dtype", open_dtype), ("recompute", open_recompute(record)))
    open_plan = tuple((field, odds) for field, odds in asked if len(odds) > 1)
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
            flops = tokens * model.train_flops_per_token(plan.seq_len, causal=False, recompute=recompute)
        else:
            flops = model.step_flops(plan, recomputed=counts_recompute)
        return flops / (record.tflops_per_gpu * 1e12 * plan.n_devices)
    raise UnsupportedRowError(NO_NUMBER)
