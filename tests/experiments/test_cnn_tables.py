"""CNN rows of the tables: what frameworks imply, and levels of sources that no row speaks of."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.nonllm_tables.jobs import step_row
from experiments.nonllm_tables.levels import fitted, measured, predicted_log_s
from experiments.nonllm_tables.row import TableRow
from prism_jax.workload.cnn.spec import CnnSpec


def _row(source: str, n_gpus: int = 8, **changes: object) -> TableRow:
    known = {
        "gpu": "v100-16gb",
        "n_gpus": n_gpus,
        "gpus_per_node": min(n_gpus, 8),
        "batch_per_gpu": 64,
        "n_accumulated": 1,
    }
    own = {
        "step_s": 0.5,
        "precision": "fp16",
        "table": "dlperf",
        "network": "100 Gb/s InfiniBand",
        "framework": "PyTorch",
    } | known
    return TableRow(id=f"{source} {n_gpus}", name="ResNet-50 v1.5", source=source, **(own | changes))  # pyright: ignore[reportArgumentType]


def test_frameworks_imply_norms_and_the_order_of_tensors() -> None:
    plain, fusing = (step_row(_row(f"DLPerf {name}", framework=name)) for name in ("PyTorch", "NGC-MxNet"))
    orders = []
    for row, norm in ((plain, None), (fusing, "fused")):
        model, _, plan = row.job
        assert isinstance(model, CnnSpec)
        assert plan.software.norm == norm
        orders.append(model.channels_last)
    assert orders == [False, True]


def test_a_stated_port_is_that_of_a_node() -> None:
    _, cluster, _ = step_row(_row("x", 16)).job
    assert cluster.tiers[1].bytes_per_s * cluster.node_size == pytest.approx(12.5e9)


def test_levels_are_recovered_and_an_unseen_source_has_none() -> None:
    """Rows that are the outline times a level per source: seen sources are met, the unseen one is taken for the others."""
    sources = {"a": 1.2, "b": 1.2, "c": 1.2, "d": 1.5}
    rows = [step_row(_row(name, n)) for name in sources for n in (1, 4, 8, 16)]
    data = measured(rows, ["one path"] * len(rows))
    none = fitted(data, np.zeros(len(rows), dtype=bool))
    bare = predicted_log_s(data, none)
    assert max(abs(none.level), abs(none.network), np.abs(none.source).max()) < 1e-6
    given = replace(data, log_s=bare + np.log([sources[row.source] for row in rows]))
    seen = fitted(given, np.ones(len(rows), dtype=bool))
    assert predicted_log_s(given, seen) == pytest.approx(given.log_s, abs=0.03)
    unseen = np.array([row.source == "d" for row in rows])
    off = (given.log_s - predicted_log_s(given, fitted(given, ~unseen)))[unseen]
    assert off == pytest.approx(np.log(1.5 / 1.2), abs=0.05)
