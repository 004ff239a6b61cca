"""Traces whose op types say nothing: streams run in order, named groups meet, circles are refused."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.assemble import assemble
from prism_jax.trace.dependencies import Lane
from prism_jax.trace.pipeline import dependencies, recorded_order
from prism_jax.trace.trace import JobShape, OpRow, OpTable, Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import skeleton


def row(rank: int, op_type: str, start_s: float, stream: str = "", group: str = "", replica: int = 0) -> OpRow:
    return OpRow(0, replica, rank, 0, op_type, -1, -1, start_s, 0.5, stream, group)


def trace_of(rows: list[OpRow], pp: int = 1, dp: int = 1) -> Trace:
    return assemble(OpTable.from_rows("ops.csv", rows), JobShape("j", dp=dp, pp=pp))


def after(trace: Trace) -> dict[str, list[str]]:
    needs = recorded_order(trace)
    return {str(op): [str(trace.ops[u]) for u in needs.after[i]] for i, op in enumerate(trace.ops)}


def test_ops_of_a_stream_run_one_after_another() -> None:
    """Whatever their type, and independently of other streams."""
    trace = trace_of([row(0, "a", 0.0, "s"), row(0, "b", 1.0, "t"), row(0, "c", 2.0, "s"), row(0, "a", 3.0, "t")])
    assert after(trace) == {
        "a 0 of stage 0": [],
        "b 0 of stage 0": [],
        "c 0 of stage 0": ["a 0 of stage 0"],
        "a 1 of stage 0": ["b 0 of stage 0"],
    }
    assert recorded_order(trace).lanes == (Lane(0, 0, "s"), Lane(0, 0, "t"))


def test_without_streams_every_op_type_is_one() -> None:
    trace = trace_of([row(0, "a", 0.0), row(0, "b", 1.0), row(0, "a", 2.0)])
    assert after(trace) == {"a 0 of stage 0": [], "b 0 of stage 0": [], "a 1 of stage 0": ["a 0 of stage 0"]}


def test_groups_meet_across_ranks_and_replicas() -> None:
    rows = [row(r, "ar", 1.0 + r, "comm", "g", d) for r in range(2) for d in range(2)]
    trace = trace_of(rows + [row(r, "mm", 0.0, "main", "", d) for r in range(2) for d in range(2)], pp=2, dp=2)
    needs = recorded_order(trace)
    members = [[str(trace.ops[op]) for op in ops] for ops in needs.members()]
    assert members == [["ar 0 of stage 0", "ar 0 of stage 1"]]
    np.testing.assert_array_equal(needs.meets_replicas, needs.group >= 0)
    alone = recorded_order(trace.choose(replicas=np.array([0])))
    assert not alone.meets_replicas.any()
    assert (alone.group >= 0).sum() == 2


def test_groups_entered_in_another_order_are_a_circle() -> None:
    """Rank 0 enters g before h, rank 1 h before g, each on one stream: nobody could have gone on."""
    rows = [
        row(0, "ar", 0.0, "s", "g"),
        row(0, "ar", 1.0, "s", "h"),
        row(1, "ar", 0.0, "s", "h"),
        row(1, "ar", 1.0, "s", "g"),
    ]
    with pytest.raises(DataError, match="ops.csv: the recorded ops wait for each other: ar 0 of stage 0 waits for"):
        recorded_order(trace_of(rows, pp=2))


def test_rules_are_used_where_the_op_types_are_known() -> None:
    trace, by_rule = skeleton(PipelineJob(2, 2, 3))
    assert dependencies(trace).after == by_rule.after
    other = trace_of([row(0, "a", 0.0), row(0, "a", 2.0)])
    assert dependencies(other).after == recorded_order(other).after
