"""Parallel degrees that a row does not state: the first of the usual ones under which the model fits into memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from .....errors import PrismError
from .....framework import framework_of
from .....memory.breakdown import memory
from .....system.hardware import Cluster
from .....workload.transformer.spec import TransformerSpec
from ..framework import framework_of_record
from ..kind import UnsupportedRowError
from ..plan import plan_of_record, states_degrees
from ..record import StepRecord
from .assumption import Assumption, assuming
from .batch import with_batch

STAGES = (2, 4, 8, 16)
LONG_SEQUENCE = 32_768  # from which on sequences are split rather than matrices
_Found = tuple[StepRecord, tuple[Assumption, ...]]


def with_degrees(record: StepRecord, model: TransformerSpec, cluster: Cluster) -> _Found:
    """The record with its degrees, if it states none; its sequence length is known.

    Notes:
        Tensor parallelism first, up to a node, then pipeline stages; activations are recomputed only where nothing fits without
        and the row does not say. If nothing fits at all, the widest. On TPU, chips that exceed the sequences of a step share
        them: by context parallelism for long sequences, by tensor parallelism for others.
    """
    if _is_short_of_sequences(record):
        return _shared_sequences(record)
    if states_degrees(record):
        return record, ()
    widest: _Found | None = None
    for tp, pp, recompute in _candidates(record, model, cluster):
        given: dict[str, int | str] = {"tp": tp, "pp": pp} | ({"recompute": recompute} if recompute else {})
        found = assuming(record, "not published: the first of the usual ones that fits into memory", given)
        try:
            done = with_batch(found[0], model, cluster)
            plan = plan_of_record(done[0])
            fits = memory(model, cluster, plan, framework_of(framework_of_record(record)).memory).fits
        except (UnsupportedRowError, PrismError):
            continue
        if fits:
            return found
        widest = found
    return widest or (record, ())


def _candidates(record: StepRecord, model: TransformerSpec, cluster: Cluster) -> Iterator[tuple[int, int, str]]:
    """(tp, pp, recomputation) from the narrowest on; tp alone where parameters are sharded."""
    node = min(record.gpus_per_node or cluster.node_size, 8)
    degrees = [(tp, 1) for tp in (1, 2, 4, 8) if tp <= node and model.n_heads % tp == 0]
    widest = degrees[-1][0]
    if re.search(r"tensor parallel", record.notes, re.IGNORECASE):
        degrees = [(widest, 1)]
    elif record.tp is not None:
        degrees = [(record.tp, 1)]
    if not record.sharding or record.sharding in ("none", "zero1"):
        degrees += [(degrees[-1][0], pp) for pp in STAGES if model.n_layers % pp == 0]
    if record.pp is not None:
        degrees = [(tp, record.pp) for tp in dict.fromkeys(tp for tp, _ in degrees)]
    known = record.recompute in ("none", "selective", "full")
    for recompute in ("",) if known else ("", "full"):
        for tp, pp in degrees:
            if (record.n_gpus or 1) % (tp * pp) == 0:
                yield tp, pp, recompute


def _is_short_of_sequences(record: StepRecord) -> bool:
    """On TPU, where every chip has sequences of its own unless something else is said."""
    is_blank = (record.tp, record.pp, record.cp) in ((None, None, None), (None, None, 1))
    is_tpu = record.gpu.lower().startswith("tpu")
    return bool(is_tpu and is_blank and record.global_batch and (record.n_gpus or 1) > 1) and bool(
        record.global_batch and record.global_batch % (record.n_gpus or 1)
    )


def _shared_sequences(record: StepRecord) -> _Found:
    n = record.n_gpus or 1
    shared = n // gcd(n, record.global_batch or 1)
    axis = "cp" if (record.seq_len or 0) >= LONG_SEQUENCE else "tp"
    found = assuming(record, f"fewer sequences than chips: {shared} chips share one", {axis: shared})
    return replace(found[0], pp=1), found[1]
