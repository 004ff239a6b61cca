"""Which blocks a model chunk holds and which chunks a pipeline stage holds. Integer counts only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..errors import PlanError
from ..plan.plan import ParallelPlan
from ..workload.base import Workload, distinct_runs, n_body

ChunkBlocks = tuple[int, ...]
"""Blocks of each kind in a model chunk, in the order of `kinds_of(model)`; chunks that hold the same cost the same."""


@dataclass(frozen=True)
class Splits:
    """Counts that may be uneven.

    Attributes:
        layers: per model chunk.
        micro_batches: per replica.
    """

    layers: tuple[int, ...]
    micro_batches: tuple[int, ...]


@lru_cache(maxsize=256)
def chunk_blocks(model: Workload, plan: ParallelPlan) -> tuple[ChunkBlocks, ...]:
    """What every model chunk holds, in model order.

    Raises:
        PlanError: `layer_split` does not match the chunks or the layers.
    """
    layers = layers_of_chunks(n_body(model), plan)
    first, last = 0, len(layers) - 1
    columns = [run._replace(count=0) for run in distinct_runs(model)]
    chunks = [[0] * len(columns) for _ in layers]
    start = 0
    for run in model.layout:
        body = range(start, start + run.count) if run.place == "body" else range(0)
        start += len(body)
        column = columns.index(run._replace(count=0))
        for index, (held, own) in enumerate(zip(chunks, layers, strict=True)):
            fixed = run.count if (run.place, index) in (("first", first), ("last", last)) else 0
            held[column] += fixed + len(range(max(own.start, body.start), min(own.stop, body.stop)))
    return tuple(tuple(held) for held in chunks)


def layers_of_chunks(n_layers: int, plan: ParallelPlan) -> tuple[range, ...]:
    """Layer numbers of every model chunk, in model order.

    Notes:
        Without `plan.layer_split` chunks differ by at most one layer, and those that get one less are taken from the two
        ends in turn (last, first, ...), because embedding and head add to these. So did Llama 3 (arXiv 2407.21783,
        section 3.3.2: one layer fewer on the first and on the last stage).

    Raises:
        PlanError: `layer_split` does not match the chunks or the layers.
    """
    sizes = plan.layer_split or _even_split(n_layers, plan.n_chunk)
    if len(sizes) != plan.n_chunk:
        raise PlanError(
            f"layer_split has {len(sizes)} entries, but pp * virtual_stages = {plan.n_chunk}. Give one count per chunk."
        )
    if sum(sizes) != n_layers:
        raise PlanError(f"layer_split adds up to {sum(sizes)} layers, but the model has {n_layers}")
    starts = [sum(sizes[:chunk]) for chunk in range(plan.n_chunk)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _even_split(n_layers: int, n_chunk: int) -> tuple[int, ...]:
    base, n_extra = divmod(n_layers, n_chunk)
    if n_extra == 0:
        return (base,) * n_chunk
    short = n_chunk - n_extra
    first, last = short // 2, n_chunk - (short - short // 2)
    return tuple(base + 1 if first <= chunk < last else base for chunk in range(n_chunk))


def chunks_of_stage(plan: ParallelPlan, stage: int) -> tuple[int, ...]:
    """Chunks whose parameters live on `stage` under the plan's schedule, in model order."""
    return plan.pipeline_schedule.chunks_of_stage(stage, plan.pp, plan.virtual_stages)
