"""Drafts of dependencies: an order in which the ops can run, or the circle in which they wait."""

from typing import Any, cast

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.dependencies import Dependencies, Links
from prism_jax.trace.trace import Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import skeleton


@pytest.fixture(scope="module")
def trace() -> Trace:
    return skeleton(PipelineJob(pp=2, dp=2, n_micro_batch=3))[0]


def links(trace: Trace) -> Links:
    """All ops on one lane, without dependencies."""
    found = Links(trace)
    found.lane = cast(Any, dict.fromkeys(range(len(trace.ops)), "lane"))
    return found


def test_circle_is_reported_with_the_names_of_its_ops(trace: Trace) -> None:
    found = links(trace)
    found.chain([1, 2, 3])
    found.after[1].add(3)
    found.after[5].add(3)  # waits for the circle, but is not in it
    a, b, c = (str(trace.ops[op]) for op in (1, 2, 3))
    with pytest.raises(DataError) as error:
        found.done()
    assert str(error.value) == (
        f"synthetic.csv: the recorded ops wait for each other: {a} waits for {c} waits for {b} waits for {a}"
    )


def test_circle_through_a_group_is_found(trace: Trace) -> None:
    """Each op is fine on its own, but the group of 1 and 2 waits for 3, which waits for 2."""
    found = links(trace)
    found.after[1].add(3)
    found.after[3].add(2)
    assert len(found.done().order) == len(trace.ops)
    found.groups.append([1, 2])
    with pytest.raises(DataError, match="wait for each other"):
        found.done()


def test_order_runs_ops_after_all_they_wait_for() -> None:
    _, needs = skeleton(PipelineJob(pp=4, dp=2, n_micro_batch=8, virtual_stages=2))
    place = np.empty(len(needs.order), dtype=int)
    place[needs.order] = np.arange(len(needs.order))
    members = needs.members()
    for op, after in enumerate(needs.after):
        together = members[needs.group[op]] if needs.group[op] >= 0 else [op]
        assert all(place[need] < place[peer] for need in after for peer in together)


def test_draft_of_known_dependencies_gives_them_back(trace: Trace) -> None:
    needs = skeleton(PipelineJob(pp=2, dp=2, n_micro_batch=3))[1]
    assert_same(Links.of(trace, needs).done(), needs)


def assert_same(a: Dependencies, b: Dependencies) -> None:
    assert (a.after, a.lanes) == (b.after, b.lanes)
    for name in ("lane", "group", "meets_replicas", "hidden_meeting", "order"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_transfers_are_the_ops_of_groups(trace: Trace) -> None:
    needs = skeleton(PipelineJob(pp=2, dp=2, n_micro_batch=3))[1]
    plain = {trace.ops[op].op_type for op in np.flatnonzero(needs.group < 0)}
    assert plain == {"forward-compute", "backward-compute", "gc", "layernorm-grads-all-reduce", "optimizer"}
    assert sorted(op for ops in needs.members() for op in ops) == np.flatnonzero(needs.group >= 0).tolist()
