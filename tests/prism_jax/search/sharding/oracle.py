"""Random sharding tasks, and a slow evaluator that shares nothing with the batched one: loops over ranks and pieces."""

from __future__ import annotations

import numpy as np

from prism_jax.search.sharding.exchange import Exchange
from prism_jax.search.sharding.task import Pieces, ShardingTask


def random_task(n_table: int, n_ranks: int, seed: int, n_sample: int = 1, shared: bool = False) -> ShardingTask:
    """Tables of all sizes; rows and copies are allowed with `shared`."""
    rng = np.random.default_rng(seed)
    rows, dims = 10 ** rng.uniform(3, 7, n_table), rng.choice([16.0, 32.0, 64.0, 128.0], n_table)
    pooling = np.exp(rng.normal(1.5, 1.0, n_table))
    names = tuple(f"t{i}" for i in range(n_table))
    pieces = Pieces(names, np.arange(n_table), np.ones(n_table, int), rows, dims, pooling)
    seconds = pooling * dims * 2e-7 * rng.uniform(0.5, 1.5, (3, 2, 2, n_table)) + 1e-5
    seconds = seconds * np.array([1.0, 1.2 / n_ranks, 1.1 / n_ranks])[:, None, None, None]
    drawn = seconds[..., None] * np.exp(0.2 * rng.normal(size=(n_table, n_sample)))
    held = np.stack([rows * dims * 4, rows * dims * 4 / n_ranks, rows * dims * 4])
    joint = np.stack([0 * dims, 1e4 * dims, rows * dims * 4])
    allowed = np.ones((3, n_table), bool)
    allowed[1:] = shared
    return ShardingTask(
        pieces,
        n_ranks,
        drawn,
        held,
        1e4 * dims,
        joint,
        allowed,
        60e9,
        Exchange(lambda n_bytes: 2e-5 + n_bytes / 2e11),
        (lambda n_bytes: n_bytes / 1e11, lambda n_bytes: n_bytes / 5e10),
        (3e-6, 5e-6),
        (1e-5, 0.0),
        1e-3,
    )


def slow_step(task: ShardingTask, codes: list[int], sample: int) -> float:
    """Seconds of the step under one assignment."""
    n, n_piece = task.n_ranks, len(codes)
    step = task.fixed_s
    for part in range(task.seconds_s.shape[1]):
        slowest = 0.0
        for rank in range(n):
            busy = []
            for resource in range(task.seconds_s.shape[2]):
                total = 0.0
                for piece in range(n_piece):
                    way = {n: 1, n + 1: 2}.get(codes[piece], 0)
                    if way or codes[piece] == rank:
                        total += float(task.seconds_s[way, part, resource, piece, sample])
                busy.append(total)
            slowest = max(slowest, max(busy) + (task.start_s[part] if max(busy) > 0.0 else 0.0))
        step += slowest
    sent = [sum(float(task.sent_bytes[p]) for p in range(n_piece) if codes[p] == rank) for rank in range(n)]
    crossing = max(max(sum(sent) - own, (n - 1) * own) for own in sent)
    one = float(task.exchange.law(np.array(crossing * n / (n - 1))))
    step += sum(max(one - beside, 0.0) for beside in task.beside_s)
    for way in (1, 2):
        joint = sum(float(task.joint_bytes[way, p]) for p in range(n_piece) if codes[p] == n + way - 1)
        step += float(task.joint_laws[way - 1](np.array(joint)))
    return step


def slow_memory(task: ShardingTask, codes: list[int]) -> list[float]:
    """[rank] bytes of the tables."""
    n = task.n_ranks
    own = [{n: 1, n + 1: 2}.get(code, 0) for code in codes]
    return [
        sum(float(task.held_bytes[way, p]) for p, way in enumerate(own) if way or codes[p] == rank) for rank in range(n)
    ]
