"""Random sharding tasks: tables like those of recommendation models in production, on one node of A100.

Rows, columns and look-ups are drawn; no index data is read, and reuse is Zipf's. Mean pooling is that of Meta's published
access statistics of 2021 (856 tables: 15.8 look-ups per sample; facebookresearch/dlrm_datasets, MIT). The step has no dense part,
so that regrets are shares of what the assignment decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from prism_jax.cost.block_cost import collective_s
from prism_jax.cost.efficiency import efficiency
from prism_jax.sharding.problem import ShardingProblem
from prism_jax.sharding.task import Exchange, Law, StepRest, per_size
from prism_jax.system import catalog as systems
from prism_jax.system.hardware import Cluster
from prism_jax.workload.dlrm.lookup_law import lookup_law
from prism_jax.workload.dlrm.tables import EmbeddingTable, Zipf

MEAN_POOLING, POOLING_SPREAD = 15.8, 1.2  # the second: standard deviation of the logarithm
LEAST_ROWS, MEDIAN_ROWS, MOST_ROWS = 100.0, 2e5, 2e7
DIMS = (16, 32, 64, 128)
BATCH = 16384  # of a GPU
RESERVED = 8e9  # bytes of a GPU that are not for tables


def random_tables(n: int, rng: np.random.Generator) -> tuple[EmbeddingTable, ...]:
    """`n` tables: rows log-normal over three decades, pooling log-normal, Zipf exponents between 0.6 and 1.2."""
    rows = np.clip(MEDIAN_ROWS * np.exp(2.0 * rng.standard_normal(n)), LEAST_ROWS, MOST_ROWS)
    log_mean = np.log(MEAN_POOLING) - 0.5 * POOLING_SPREAD**2
    pooling = np.clip(np.exp(log_mean + POOLING_SPREAD * rng.standard_normal(n)), 1.0, 200.0)
    dims, exponents = rng.choice(DIMS, n), rng.uniform(0.6, 1.2, n)
    return tuple(
        EmbeddingTable(f"t{i}", round(float(rows[i])), int(dims[i]), float(pooling[i]), 4, Zipf(float(exponents[i])))
        for i in range(n)
    )


def problem(n_table: int, n_gpus: int, seed: int, *, spread: float = 0.0, split: bool = False) -> ShardingProblem:
    """A task; the same seed has the same tables."""
    tables = random_tables(n_table, np.random.default_rng([seed, n_table, n_gpus]))
    cluster = systems.cluster("dgx-a100", n_devices=n_gpus)
    eff = efficiency(cluster.device.generation)
    law = lookup_law(cluster.device, eff.cache_bytes)
    rest = StepRest(
        Exchange(_law("all_to_all", cluster)),
        (_law("reduce_scatter", cluster), _law("all_gather", cluster)),
        _law("all_reduce", cluster),
        (law.start_s, law.start_s),
    )
    room = cluster.device.hbm_bytes - RESERVED
    spreads = (spread,) * len(tables)
    return ShardingProblem(
        tables, n_gpus, BATCH * n_gpus, law, room, rest, "rowwise_adagrad", spread=spreads, split=split
    )


def problems(n: int, n_gpus: int, least: int, most: int, **options: float | bool) -> Iterator[ShardingProblem]:
    """Tasks of `least` to `most` tables."""
    for seed in range(n):
        size = int(np.random.default_rng([seed, least, most]).integers(least, most + 1))
        yield problem(size, n_gpus, seed, **options)  # pyright: ignore[reportArgumentType]


def _law(kind: str, cluster: Cluster) -> Law:
    return per_size(lambda n_bytes: float(collective_s(kind, n_bytes, cluster, 1, cluster.n_devices).seconds))
