"""Memory tables: rows of training layouts that fitted or ran out of memory, and how the memory model classifies them.

A row is a nanotron layout on H100-80GB (columns of `memory_oom.csv`): architecture, degrees, micro-batch, outcome, peak
GiB. Rows that failed for another reason than memory are left out.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..cost.memory import MemoryBreakdown, memory
from ..cost.memory_options import GIB, NANOTRON, MemoryOptions
from ..errors import DataError
from ..plan import ParallelPlan
from ..system import catalog
from ..workload.transformer import TransformerSpec

_CLUSTER = "dgx-h100"
_OUTCOMES = {"Success": True, "OOM": False}


@dataclass(frozen=True)
class MemoryRow:
    """One layout and what became of it."""

    id: str
    model: TransformerSpec
    plan: ParallelPlan
    fitted: bool
    peak_reserved_bytes: float | None  # by the caching allocator, without context and communicators


@dataclass(frozen=True)
class Classified:
    """A row with its prediction."""

    row: MemoryRow
    predicted: MemoryBreakdown

    @property
    def correct(self) -> bool:
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
        counts = {(fitted, fits): 0 for fitted in (True, False) for fits in (True, False)}
        for item in rows:
            counts[item.row.fitted, item.predicted.fits] += 1
        return cls(counts[True, True], counts[True, False], counts[False, True], counts[False, False])

    @property
    def n(self) -> int:
        return self.fits_fits + self.fits_oom + self.oom_fits + self.oom_oom

    @property
    def accuracy(self) -> float:
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
        return Confusion.of(self.rows)

    def by_model(self) -> dict[str, Confusion]:
        names = sorted({item.row.model.name for item in self.rows})
        return {name: Confusion.of(item for item in self.rows if item.row.model.name == name) for name in names}

    def reserved_errors(self) -> list[float]:
        """Relative errors of the peak reserved memory over the rows that report it."""
        return [item.reserved_error for item in self.rows if item.reserved_error is not None]


def classify_rows(path: str | Path, options: MemoryOptions = NANOTRON) -> MemorySummary:
    """Predict for every row of a memory table whether it fits.

    Raises:
        DataError: the file cannot be read; names row and field.
    """
    rows = read_memory_table(path)
    return MemorySummary(tuple(Classified(row, _predicted(row, options)) for row in rows))


def _predicted(row: MemoryRow, options: MemoryOptions) -> MemoryBreakdown:
    return memory(row.model, catalog.cluster(_CLUSTER, row.plan.n_devices), row.plan, options)


def read_memory_table(path: str | Path) -> list[MemoryRow]:
    """Rows that fitted or ran out of memory; other failures are left out.

    Raises:
        DataError: a field is missing or not a number; names row and field.
    """
    file = Path(path)
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", newline="") as handle:
        raw = list(csv.DictReader(handle))
    return [_row(record, f"{file.name} row {number}") for number, record in enumerate(raw, 2) if _known(record, file)]


def _known(record: dict[str, str], file: Path) -> bool:
    if "status" not in record:
        raise DataError(f"{file.name}: no column `status`; a memory table says Success or OOM there")
    return record["status"] in _OUTCOMES


def _integer(record: dict[str, str], field: str, where: str, default: int | None = None) -> int:
    text = (record.get(field) or "").strip()
    if not text and default is not None:
        return default
    try:
        return int(float(text))
    except ValueError:
        raise DataError(f"{where}: {field} = {text!r} is not a whole number") from None


def _row(record: dict[str, str], where: str) -> MemoryRow:
    hidden = _integer(record, "hidden", where)
    n_heads = _integer(record, "heads", where)
    model = TransformerSpec(
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
    reserved = (record.get("peak_mem_reserved_gb") or "").strip()
    return MemoryRow(
        id=record.get("job_id", where),
        model=model,
        plan=_plan(record, where, model),
        fitted=_OUTCOMES[record["status"]],
        peak_reserved_bytes=float(reserved) * GIB if reserved else None,
    )


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
    )
    return replace(plan, layer_split=cost_balanced_split(model, pp))


def cost_balanced_split(model: TransformerSpec, pp: int) -> tuple[int, ...]:
    """Layers per stage when blocks are dealt out by compute, the head counting as one block.

    A stage takes blocks until their running cost exceeds its share of the total. The cost of a block is its matrix
    parameters; embedding and norms are free.

    Source: nanotron, `models/base.py` (`build_model`) and `LlamaForTraining.get_block_compute_costs`.
    """
    layer = 4 * model.n_heads * model.qk_head_dim * model.hidden + 3 * model.ffn_hidden * model.hidden
    total = model.n_layers * layer + model.vocab * model.hidden
    sizes = [0] * pp
    stage = 0
    for n_dealt in range(1, model.n_layers + 1):
        sizes[stage] += 1
        if n_dealt * layer > total * (stage + 1) / pp and stage < pp - 1:
            stage += 1
    return tuple(sizes)
