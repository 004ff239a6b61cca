"""Random sharding tasks, and a slow evaluator that shares nothing with the batched one: loops over ranks and pieces."""

import numpy as np

from prism_jax.sharding.task import Exchange, Pieces, ShardingTask, StepRest


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
        1e4 * dims * np.array([1.0, 0.2, 0.0])[:, None],
        joint,
        allowed,
        60e9,
        StepRest(
            Exchange(lambda n_bytes: 2e-5 + n_bytes / 2e11),
            (lambda n_bytes: n_bytes / 1e11, lambda n_bytes: n_bytes / 5e10),
            lambda n_bytes: n_bytes / 3e10,
            (3e-6, 5e-6),
            (1e-5, 2e-4),
            (0.0, 3e-4),
            0.0,
            2,
            1e-3,
        ),
    )


def slow_step(task: ShardingTask, codes: list[int], sample: int) -> float:
    """Seconds of the step under one assignment."""
    n, rest = task.n_ranks, task.rest
    own = [{n: 1, n + 1: 2}.get(code, 0) for code in codes]

    def total(of_way: np.ndarray, ways: tuple[int, ...], rank: int | None = None) -> float:
        """Sum over the pieces that are held in one of these ways, whole ones on that rank only."""
        held = [p for p, way in enumerate(own) if way in ways and (way or rank is None or codes[p] == rank)]
        return sum(float(of_way[own[p], p]) for p in held)

    sent = [total(task.sent_bytes, (0, 1, 2), rank) for rank in range(n)]
    crossing = max(max(sum(sent) - each, (n - 1) * each) for each in sent)
    exchange = float(rest.exchange.law(np.array(crossing * n / (n - 1))))
    step = rest.fixed_s + float(rest.copies_law(np.array(total(task.joint_bytes, (2,)))))
    for part in range(task.seconds_s.shape[1]):
        busy = [
            max(total(task.seconds_s[:, part, r, :, sample], (0, 1, 2), rank) for r in range(task.seconds_s.shape[2]))
            for rank in range(n)
        ]
        slowest = max(seconds + (rest.start_s[part] if seconds > 0.0 else 0.0) for seconds in busy)
        device = slowest + exchange + float(rest.rows_laws[part](np.array(total(task.joint_bytes, (1,)))))
        device += rest.other_s[part]
        step += rest.n_micro_batch * (device**6 + rest.host_s[part] ** 6) ** (1.0 / 6.0)
    return step


def slow_memory(task: ShardingTask, codes: list[int]) -> list[float]:
    """[rank] bytes of the tables."""
    n = task.n_ranks
    own = [{n: 1, n + 1: 2}.get(code, 0) for code in codes]
    return [
        sum(float(task.held_bytes[way, p]) for p, way in enumerate(own) if way or codes[p] == rank) for rank in range(n)
    ]
