"""Noise-free step time of plans from their costs alone; no pipeline is run.

GPipe and 1F1B are their lower bound and what they send. The others wait longer: where communication runs beside compute
(DualPipe), where chunks of one stage differ (interleaved), and where weight gradients do not fill what is left open (zero
bubble). With F, B, W the mean seconds of a chunk, p stages, m micro-batches and x+ the positive part of x:

    DualPipe      max_s (n_pair pair_s + n_alone (F + B + W)_s) + (p / 2 - 1) (pair + B - 2 W)+
    ZB-H1, -H2    bound + (p - 1) (B - min(w, (m - 1) / (p - 1)) W)+                           w = 1, 2
    ZB-V          max_s busy_s + (p - 1) max(F, B, 2 B - 2 W)                                   from 2 p micro-batches on
    interleaved   m sum_v max_s (F + B + W)_vs, v being the chunks of a stage, if that is above the bound

The bubbles are those of DeepSeek-V3 (arXiv 2412.19437, table 2) and Qi et al. (arXiv 2401.10241, table 1), corrected for few
micro-batches by what the schedules of `graph` do.
"""

from __future__ import annotations

import numpy as np

from ..._typing import Floats
from ..plans.block import TableCost, chunk_seconds
from ..plans.bound import lower_bound, stage_shares
from ..plans.cost_cache import PlanCosts

_FILLED = {"zb_h1": 1.0, "zb_h2": 2.0}  # weight gradients that fill the wait for a gradient
_ROWS = 1 << 14


def estimate_s(cost: TableCost, costs: PlanCosts) -> Floats:
    """[plan] noise-free step time of the plans of a block, seconds: a few per cent off, most where micro-batches are few."""
    slowdown = costs.eff.overlap_slowdown
    found = lower_bound(cost, slowdown)
    for first in range(0, len(found), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(found)))
        seconds = chunk_seconds(cost, rows, slowdown)
        compute, comm, hidden = (part[..., 0] for part in seconds)  # [plan, kind, chunk]
        found[rows] = _waiting_s(cost, rows, found[rows], compute, comm, hidden) + _sent_s(cost, rows, compute + comm)
    return found


def _sent_s(cost: TableCost, rows: np.ndarray, whole: Floats) -> Floats:
    """[plan] what transfers between stages add to the busiest stage, and the way there and back of one micro-batch."""
    plan, table = cost.table.plan(0), cost.table
    edge = cost.edge_s[cost.of_edge[rows]]
    beyond = edge.copy()  # a forward is sent over the edge after its chunk, a gradient over the edge before
    beyond[:, 1:] += edge[:, :-1]
    busy, held = whole.sum(axis=1), stage_shares(plan)
    more = ((busy + beyond) @ held).max(axis=1) - (busy @ held).max(axis=1)
    return more * table.n_micro_batch[rows] * (1 - table.overlap_pp[rows]) + 2.0 * edge[:, : plan.pp].sum(axis=1)


def _waiting_s(
    cost: TableCost, rows: np.ndarray, bound: Floats, compute: Floats, comm: Floats, hidden: Floats
) -> Floats:
    """[plan] without transfers, from the bound and the seconds of chunks [plan, kind, chunk]."""
    end = (cost.end.compute_s + cost.end.exposed_s)[rows]
    m, plan = cost.table.n_micro_batch[rows], cost.table.plan(0)
    pp, whole = plan.pp, compute + comm
    match plan.schedule:
        case "gpipe" | "1f1b":
            return bound
        case "dualpipe":
            return np.maximum(bound, _dual_pipe_s(compute, comm, hidden, end, m))
        case "interleaved":
            slot = whole.reshape(*whole.shape[:2], -1, pp).max(axis=3).sum(axis=(1, 2))
            return np.maximum(bound, m * slot + end.max(axis=1))
        case "zb_v":
            busy = m[:, None] * (whole.sum(axis=1) @ stage_shares(plan)) + end
            return busy.max(axis=1) + (pp - 1) * _open_v_s(whole.mean(axis=2), m, pp)
    b, w = whole.mean(axis=2)[:, 1:].T
    filled = np.minimum(_FILLED[plan.schedule], (m - 1) / max(pp - 1, 1))
    return bound + (pp - 1) * np.maximum(b - filled * w, 0.0)


def _open_v_s(mean: Floats, m: np.ndarray, pp: int) -> Floats:
    """[plan] bubble of ZB-V per further stage, of mean seconds [plan, kind]: of many, of pp, and of fewer micro-batches."""
    f, b, w = mean.T
    many = np.maximum(np.maximum(f, b), 2.0 * (b - w))
    few = 2.0 * b + 2.0 * f * np.maximum(1.0 - (m - 1) / max(pp - 1, 1), 0.0)
    share = np.clip(m / pp - 1.0, 0.0, 1.0)
    return share * many + (1.0 - share) * few


def _dual_pipe_s(compute: Floats, comm: Floats, hidden: Floats, end: Floats, m: np.ndarray) -> Floats:
    """[plan] of seconds [plan, kind, chunk]: a forward of chunk q runs beside a backward of its mirror image on the stage."""
    pp = compute.shape[2]
    sides = (slice(0, 1), slice(1, 3))
    busy = [compute[:, side].sum(axis=1) for side in sides]
    sent = [comm[:, side].sum(axis=1) for side in sides]
    free = [np.maximum(own - hidden[:, side].sum(axis=1), 0.0) for own, side in zip(busy, sides, strict=True)]
    forward = busy[0] + np.maximum(sent[0] - free[1][:, ::-1], 0.0)
    backward = busy[1] + np.maximum(sent[1] - free[0][:, ::-1], 0.0)
    pair, alone = forward + backward[:, ::-1], (compute + comm).sum(axis=1)
    pair, alone = (0.5 * (part + part[:, ::-1]) for part in (pair, alone))
    stage = np.arange(pp)
    inner = np.minimum(stage, pp - 1 - stage)
    outer = pp // 2 - 1 - inner
    n_alone = 2 * pp - 2 - 2 * inner - outer + (outer == 0)
    _, b, w = (compute + comm).mean(axis=2).T
    bubble = (pp // 2 - 1) * np.maximum(pair.mean(axis=1) + b - 2.0 * w, 0.0)
    return ((m[:, None] - n_alone) * pair + n_alone * alone + end).max(axis=1) + bubble
