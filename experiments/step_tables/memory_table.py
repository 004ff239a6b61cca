"""The table of layouts that fitted or ran out of memory under nanotron, and how the memory model classifies them.

A row is a layout (columns of `memory_oom.csv`): architecture of Llama type, degrees, micro-batch, device, outcome, peak GiB.
Rows that failed for another reason than memory are left out. No device stated: H100-80GB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from experiments.step_tables.records import largest
from prism_jax.core.errors import DataError, PlanError, SpecError
from prism_jax.core.kernels import COMMON_RECOMPUTE
from prism_jax.cost.memory import memory
from prism_jax.cost.memory_layouts import ClassifiedLayout, MeasuredLayout, MemorySummary
from prism_jax.framework.base import GIB, MemoryOptions
from prism_jax.framework.frameworks import NANOTRON, cost_balanced_split
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.tables.csv_rows import CsvTable, Seen, number_of, read_packed_text, whole_number
from prism_jax.tables.document import short
from prism_jax.workload.transformer.spec import TransformerSpec

_DEVICE = "h100-sxm"
_OUTCOMES = {"Success": True, "OOM": False}
_COLUMNS = ("status", "model", "layers", "hidden", "heads", "vocab", "seq_len", "tp", "pp", "dp", "micro_batch")


def classify_rows(path: str | Path, options: MemoryOptions = NANOTRON.memory) -> MemorySummary:
    """Predict for every row of a memory table whether it fits.

    Raises:
        DataError: the file cannot be read; names row and field.
    """
    rows = read_memory_table(path)
    return MemorySummary(
        tuple(ClassifiedLayout(row, memory(row.model, row.cluster, row.plan, options)) for row in rows)
    )


def read_memory_table(path: str | Path) -> list[MeasuredLayout]:
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


def _row(record: dict[str, str], where: str) -> MeasuredLayout:
    try:
        model = _model(record, where)
        plan = _plan(record, where, model)
        cluster = catalog.default_cluster(record.get("gpu", "").strip() or _DEVICE, plan.n_devices)
    except (PlanError, SpecError) as error:
        raise DataError(f"{where}: {error}") from None
    reserved = record.get("peak_mem_reserved_gb", "").strip()
    return MeasuredLayout(
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
