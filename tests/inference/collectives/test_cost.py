"""Measured collectives over the network's own law: what the fit says is what the cluster then takes."""

import numpy as np
import pandas as pd
import pytest

import inference.collectives.report as cost
from inference.collectives.data import from_frame
from inference.collectives.report import measured_collectives
from prism_jax.core.errors import DataError
from prism_jax.cost.efficiency import MeasuredTables
from prism_jax.system import catalog

CLUSTER = catalog.cluster("dgx-h100", 32)
SIZES = 2.0 ** np.arange(12, 29, 2)
SLOWER = 1.3


def table(gpu: str = "", network: str = "") -> pd.DataFrame:
    """All-reduce in a node and on four: as the cluster's law has it, 1.3 times as long."""
    rows = [
        {"op": "all_reduce", "message_bytes": size, "n_gpus": n, "n_nodes": n // 8, "duration_s": seconds(size, n)}
        for n in (8, 32)
        for size in SIZES
    ]
    return pd.DataFrame(rows).assign(gpu=gpu, network=network)


def seconds(size: float, n: int) -> float:
    return SLOWER * float(CLUSTER.fabric.collective("all_reduce", size, 1, n).seconds)


@pytest.fixture(autouse=True)
def exact(monkeypatch) -> None:
    """A posterior that is sure of the table, but for a level of 1% from draw to draw."""

    def centre(law, data, draws, place, n_bytes, rng):
        return np.log([seconds(one, round(place.n_gpus)) for one in n_bytes])[None] + np.array([[-0.01], [0.01]])

    monkeypatch.setattr(cost, "log_centre", centre)


def measured(frame: pd.DataFrame, cluster=CLUSTER) -> MeasuredTables:
    return measured_collectives("power", from_frame(frame), {}, cluster, 2, np.random.default_rng(0))


def test_the_cluster_then_takes_what_was_measured():
    found = measured(table("H100-SXM-80GB"))
    fabric = found.mean.on(CLUSTER).fabric
    for n in (8, 32):
        for size in SIZES:
            assert fabric.collective("all_reduce", size, 1, n).seconds == pytest.approx(seconds(size, n), rel=1e-9)
    assert found.covers == ("all_reduce in a node", "all_reduce between nodes")
    assert found.knobs == {"scale_up", "network"}
    low, high = (draw.on(CLUSTER).fabric.collective("all_reduce", 1e6, 1, 8).seconds for draw in found.draws)
    assert high / low == pytest.approx(np.exp(0.02))


def test_larger_groups_grow_as_the_algorithm_does():
    large = CLUSTER.of_size(1024)
    ratio = measured(table(), large).mean.on(large).fabric.collective("all_reduce", 1e6, 1, 1024).seconds
    assert ratio == pytest.approx(SLOWER * large.fabric.collective("all_reduce", 1e6, 1, 1024).seconds)


def test_collectives_of_another_gpu_are_refused_with_a_remedy():
    with pytest.raises(DataError, match="collectives of A100-SXM-80GB, but the job runs on h100-sxm") as error:
        measured(table("A100-SXM-80GB"))
    assert "--where gpu=" in str(error.value)


def test_a_table_that_names_no_gpu_is_taken_and_says_so():
    assert measured(table()).notes == ("the table names no GPU: taken as measured on dgx-h100",)


def test_of_several_fabrics_none_is_taken():
    two = pd.concat([table("H100-SXM-80GB", "one"), table("H100-SXM-80GB", "other")], ignore_index=True)
    found = measured(two)
    assert found.mean.collectives is None
    assert found.covers == ()
    assert "2 fabrics" in found.notes[0]
    assert "--where network=NAME" in found.notes[0]


def test_groups_that_the_cluster_does_not_have_are_named():
    found = measured(table().assign(n_nodes=lambda rows: rows.n_gpus))
    assert found.covers == ("all_reduce between nodes",), "one device per node, 8 apart"
    alone = measured(table().assign(n_nodes=1))
    assert alone.covers == ("all_reduce in a node",)
    assert any("32 GPUs on 1 nodes: dgx-h100 has no such groups" in note for note in alone.notes)
