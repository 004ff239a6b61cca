"""Predictions with known hosts: names are nodes in the order of the file, and the report says which is which."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.prediction.predict import explain_step

JOB = """\
model: {n_layers: 4, hidden: 512, n_heads: 8, ffn_hidden: 1024, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 8, seq_len: 256, tp: 8, pp: 2, dp: 2, schedule: 1f1b}
variability: a100-default
"""


@pytest.fixture
def predicted(tmp_path):
    """The notes and the samples of a prediction with a table of slowdowns."""
    (tmp_path / "job.yaml").write_text(JOB)

    def run(text: str) -> tuple[tuple[str, ...], np.ndarray]:
        (tmp_path / "nodes.csv").write_text(text)
        found = explain_step(tmp_path / "job.yaml", slowdowns=tmp_path / "nodes.csv", n_samples=32, explained=False)
        return found.notes, np.array([found.parts.distribution.quantile(p) for p in (0.1, 0.5, 0.9)])

    return run


def test_hosts_are_nodes_in_the_order_of_the_table_and_others_are_drawn(predicted):
    notes, quantiles = predicted("host,slowdown\nz9,1.0\na1,1.4\n")
    numbered, expected = predicted("node,slowdown\n0,1.0\n1,1.4\n")
    assert np.array_equal(quantiles, expected)
    (told,) = set(notes) - set(numbered)
    assert "z9 is node 0, a1 is node 1; the other 2 of 4 nodes are drawn" in told
    _, other = predicted("host,slowdown\na1,1.4\nz9,1.0\n")  # the order counts
    assert not np.array_equal(other, expected)


def test_more_hosts_than_nodes_are_refused(predicted):
    with pytest.raises(DataError, match="e is host number 5, but the job has 4 nodes"):
        predicted("host,slowdown\n" + "".join(f"{name},1\n" for name in "abcde"))
