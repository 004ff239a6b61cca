"""Memory tables: rows of training layouts that fitted or ran out of memory, and how the memory model classifies them.

A row is a layout (columns of `memory_oom.csv`): architecture of Llama type, degrees, micro-batch, device, outcome, peak GiB.
Rows that failed for another reason than memory are left out. No device stated: H100-80GB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import DataError, PlanError, SpecError
from ...framework.memory_options import GIB, MemoryOptions
from ...framework.nanotron import NANOTRON, cost_balanced_split
from ...kernels import COMMON_RECOMPUTE
from ...memory.breakdown import MemoryBreakdown, memory
from ...plan.plan import ParallelPlan
from ...system import catalog
from ...system.hardware import Cluster
from ...workload.transformer.spec import TransformerSpec
from ..job.document import short
from ..numbers import number_of
from .counts import largest, whole_number
from .csv_rows import CsvTable, Seen
from .packed import read_packed_text

_DEVICE = "h100-sxm"
_OUTCOMES = {"Success": True, "OOM": False}
_COLUMNS = ("status", "model", "layers", "hidden", "heads", "vocab", "seq_len", "tp", "pp", "dp", "micro_batch")


@dataclass(frozen=True)
class MemoryRow:
    """One layout and what became of it."""

    id: str
    model: TransformerSpec
    plan: ParallelPlan
    cluster: Cluster
    fitted: bool
    peak_reserved_bytes: float | None  # by the caching allocator, without context and communicators


@dataclass(frozen=True)
class Classified:
    """A row with its prediction."""

    row: MemoryRow
    predicted: MemoryBreakdown

    @property
    def correct(self) -> bool:
        """Whether prediction and measurement agree on fits or out of memory."""
        return self.predicted.fits == self.row.fitted

    @property
    def reserved_error(self) -> float | None:
        """Relative error of the allocator's peak, over the stage the model finds worst."""
        if self.row.peak_reserved_bytes is None:
            return None
        return self.predicted.worst.allocator_bytes / self.row.peak_reserved_bytes - 1.0


@dataclass(frozen=True)
class Confusion:
    """Counts of (fitted or not) x (predicted to fit or not)."""

    fits_fits: int = 0
    fits_oom: int = 0
    oom_fits: int = 0
    oom_oom: int = 0

    @classmethod
    def of(cls, rows: Iterable[Classified]) -> Confusion:
        """The counts of classified rows."""
        counts = {(fitted, fits): 0 for fitted in (True, False) for fits in (True, False)}
        for item in rows:
            counts[item.row.fitted, item.predicted.fits] += 1
        return cls(counts[True, True], counts[True, False], counts[False, True], counts[False, False])

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.fits_fits + self.fits_oom + self.oom_fits + self.oom_oom

    @property
    def accuracy(self) -> float:
        """Share of rows classified right, 0 to 1."""
        return (self.fits_fits + self.oom_oom) / self.n

    @property
    def majority_accuracy(self) -> float:
        """What always saying the more frequent outcome reaches."""
        fitted = self.fits_fits + self.fits_oom
        return max(fitted, self.n - fitted) / self.n


@dataclass(frozen=True)
class MemorySummary:
    """All classified rows, overall and by model."""

    rows: tuple[Classified, ...]

    @property
    def overall(self) -> Confusion:
        """The counts of all rows."""
        return Confusion.of(self.rows)

    def by_model(self) -> dict[str, Confusion]:
        """The counts by name of the model."""
        names = sorted({item.row.model.name for item in self.rows})
        return {name: self.of_model(name).overall for name in names}

    def of_model(self, name: str) -> MemorySummary:
        """The rows of one model."""
        return MemorySummary(tuple(item for item in self.rows if item.row.model.name == name))

    def reserved_errors(self) -> list[float]:
        """Relative errors of the peak reserved memory over the rows that report it."""
        return [item.reserved_error for item in self.rows if item.reserved_error is not None]


def classify_rows(path: str | Path, options: MemoryOptions = NANOTRON.memory) -> MemorySummary:
    """Predict for every row of a memory table whether it fits.

    Raises:
        DataError: the file cannot be read; names row and field.
    """
    rows = read_memory_table(path)
    return MemorySummary(tuple(Classified(row, _predicted(row, options)) for row in rows))


def _predicted(row: MemoryRow, options: MemoryOptions) -> MemoryBreakdown:
    return memory(row.model, row.cluster, row.plan, options)


def read_memory_table(path: str | Path) -> list[MemoryRow]:
    """Rows that fitted or ran out of memory; other failures are left out.

    Raises:
        DataError: a field is missing, no number or beyond what is simulated, or a row is there twice; names row and field.
    """
    file = Path(path)
    table, seen = CsvTable(read_packed_text(file, "a memory table in CSV"), file.name), Seen()
    _check_columns(table.columns, file.name)
    rows = []
    for found in table.rows():
        if found.fields["status"] in _OUTCOMES:
            place = table.place(found.line)
            seen.check(found.fields.values(), place)
            rows.append(_row(found.fields, place))
    if not rows:
        raise DataError(
            f"{file.name}: no row says Success or OOM in its column status, so there is nothing to compare with"
        )
    return rows


def _check_columns(columns: Iterable[str], name: str) -> None:
    missing = [column for column in _COLUMNS if column not in columns]
    if missing:
        raise DataError(f"{name}: no column {missing[0]}. A memory table has {', '.join(_COLUMNS)} among others.")


def _integer(record: dict[str, str], field: str, where: str, default: int | None = None) -> int:
    text = record.get(field, "")
    if not text and default is not None:
        return default
    value = number_of(text)
    if field == "zero_stage" and value not in (0, 1, 2, 3):
        raise DataError(f"{where}: zero_stage = {short(text)}, but it must be 0, 1, 2 or 3")
    return whole_number(value, text, largest(field), f"{where}: {field}")  # what must not be 0 is said by the plan


def _row(record: dict[str, str], where: str) -> MemoryRow:
    try:
        model = _model(record, where)
        plan = _plan(record, where, model)
        cluster = catalog.default_cluster(record.get("gpu", "").strip() or _DEVICE, plan.n_devices)
    except (PlanError, SpecError) as error:
        raise DataError(f"{where}: {error}") from None
    reserved = record.get("peak_mem_reserved_gb", "").strip()
    return MemoryRow(
        id=record.get("job_id") or where,
        model=model,
        plan=plan,
        cluster=cluster,
        fitted=_OUTCOMES[record["status"]],
        peak_reserved_bytes=_peak_gib(reserved, where) * GIB if reserved else None,
    )


def _model(record: dict[str, str], where: str) -> TransformerSpec:
    hidden = _integer(record, "hidden", where)
    n_heads = _integer(record, "heads", where)
    return TransformerSpec(
        name=record["model"],
        n_layers=_integer(record, "layers", where),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=_integer(record, "kv_heads", where, n_heads),
        ffn_hidden=_integer(record, "ffn", where, 4 * hidden),
        vocab=_integer(record, "vocab", where),
        gated=True,
        norm="rms",
        position="rope",
        bias=False,
        tied_embeddings=True,
        source=record.get("source", ""),
    )


def _peak_gib(text: str, where: str) -> float:
    value = number_of(text)
    if not 0.0 < value < float("inf"):
        raise DataError(
            f"{where}: peak_mem_reserved_gb = {short(text)} is not a positive number. Leave it blank if it is unknown."
        )
    return value


def _plan(record: dict[str, str], where: str, model: TransformerSpec) -> ParallelPlan:
    tp, pp, dp = (_integer(record, field, where) for field in ("tp", "pp", "dp"))
    micro_batch = _integer(record, "micro_batch", where)
    plan = ParallelPlan(
        micro_batch=micro_batch,
        global_batch=micro_batch * dp * _integer(record, "grad_accum", where, 1),
        seq_len=_integer(record, "seq_len", where),
        tp=tp,
        pp=pp,
        dp=dp,
        sequence_parallel=tp > 1,  # nanotron's REDUCE_SCATTER mode
        zero_stage=_integer(record, "zero_stage", where, 0),
        recompute=(record.get("recompute") or "").strip() or "none",
    )
    if plan.recompute not in COMMON_RECOMPUTE:
        raise DataError(
            f"{where}: recompute = {short(plan.recompute)}, but it must be one of {', '.join(COMMON_RECOMPUTE)}"
        )
    return replace(plan, layer_split=cost_balanced_split(model, pp))
