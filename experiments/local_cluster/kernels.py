"""Kernels of several runs of one job as those of one, steps after steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prism_jax.trace.trace import Trace, TraceKernels

Place = tuple[int, str, str, int]  # op of the first run, name, stream, and how often the op has run it before


def joined_kernels(runs: Sequence[Trace]) -> TraceKernels | None:
    """The kernels of `runs`, which do the same ops; None where a run holds none.

    A place in the program keeps the pool that it has in the first run that reaches it.
    """
    known = [run.kernels for run in runs if run.kernels is not None and len(run.kernels.op)]
    if len(known) < len(runs):
        return None
    places = [_places(run, kernels, runs[0]) for run, kernels in zip(runs, known, strict=True)]
    every = sorted({place for own in places for place in own})
    pool_of = {
        place: kernels.pools[kernels.pool[entry]]
        for own, kernels in reversed(list(zip(places, known, strict=True)))
        for place, entry in own.items()
    }
    pools = sorted(set(pool_of.values()))
    number = {pool: index for index, pool in enumerate(pools)}
    parts = []
    for own, kernels in zip(places, known, strict=True):
        seconds = np.full((len(every), *kernels.seconds.shape[1:]), np.nan)
        rows = [row for row, place in enumerate(every) if place in own]
        seconds[rows] = kernels.seconds[[own[every[row]] for row in rows]]
        parts.append(seconds)
    return TraceKernels(
        tuple(pools),
        np.array([place[0] for place in every], np.int32),
        np.array([number[pool_of[place]] for place in every], np.int32),
        np.concatenate(parts, axis=-1),
    )


def _places(run: Trace, kernels: TraceKernels, first: Trace) -> dict[Place, int]:
    """Entry of every place in the program of the first run; entries of an op and a name are in the order of their runs."""
    op_of = {op: index for index, op in enumerate(first.ops)}
    count: dict[tuple[int, str, str], int] = {}
    found: dict[Place, int] = {}
    for entry, (op, pool) in enumerate(zip(kernels.op.tolist(), kernels.pool.tolist(), strict=True)):
        kind = op_of[run.ops[op]], kernels.pools[pool].name, kernels.pools[pool].stream
        count[kind] = count.get(kind, -1) + 1
        found[(*kind, count[kind])] = entry
    return found
