"""What given slowdowns of GPUs cost, as a table of nodes, slowest first: text of a prediction."""

from __future__ import annotations

from ..core.text_table import time_with_error
from ..core.units import format_s
from ..explain.types import GivenSlowdowns, SlowNode

MOST_NUMBERS = 4  # of stages or replicas of a node


def given_lines(given: GivenSlowdowns | None) -> list[str]:
    """Writes which GPUs are given, the step with nothing else varying, and a row per node; nothing where none are given."""
    if given is None:
        return []
    head = ("node", "slowest GPU", "stage", "replica", "cost in p95", "with all above")
    rows = [head, *(_node(one) for one in given.nodes)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    table = ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    rest = f"; {given.n_drawn:,} GPUs are drawn" if given.n_drawn else ""
    more = given.n_nodes - len(given.nodes)
    return [
        f"given slowdowns: {given.n_gpus:,} GPUs on {given.n_nodes:,} node{'s' if given.n_nodes > 1 else ''}{rest}",
        f"  with these and nothing else varying a step takes {format_s(given.step_s, 4)}",
        "  p95 falls by so much with other GPUs, drawn like the fleet's, in the place of those given:",
        *table,
        *([f"  and {more:,} nodes less slow"] if more else []),
    ]


def _node(one: SlowNode) -> tuple[str, ...]:
    """Cells of a node."""
    return (
        f"{one.node} ({one.name})" if one.name else str(one.node),
        f"{one.gpu} x {one.slowdown:.3f}",
        _numbers(one.stages),
        _numbers(one.replicas),
        seconds_with_error(one.cost_s, one.cost_error_s),
        seconds_with_error(one.with_slower_s, one.with_slower_error_s),
    )


def _numbers(found: tuple[int, ...]) -> str:
    """As "0-3" or "1, 4"; few of many."""
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found[:MOST_NUMBERS])) + (", ..." if len(found) > MOST_NUMBERS else "")


def seconds_with_error(value_s: float, error_s: float) -> str:
    """Writes both in one unit; 0 where neither is anything."""
    return "0" if value_s == 0.0 == error_s else time_with_error(value_s, error_s)
