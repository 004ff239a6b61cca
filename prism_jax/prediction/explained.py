"""Blocks of a prediction on where the time of a step goes, what makes its tail, and what given slowdowns of GPUs cost."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.page import Bar, Bars, Block, Facts, Note, Table
from ..core.text_table import decimals, time_with_error, unit_of_time
from ..core.units import format_s
from ..explain.types import GivenSlowdowns, SlowNode, words

SMALLEST_SHARE = 0.001  # of the step; smaller parts are not printed
SMALLEST_OWNER = 0.005  # of the largest; below, Monte Carlo noise
MOST_OWNERS = 5
MOST_CRITICAL = 4
MOST_NUMBERS = 4  # of stages or replicas of a node


def breakdown_blocks(parts_s: Mapping[str, float], criticality: Mapping[str, float]) -> list[Block]:
    """Parts of the mean step as bars, largest first, and the shares of the critical path; nothing without parts."""
    if not parts_s:
        return []
    whole_s = sum(parts_s.values())
    ranked = sorted(parts_s.items(), key=lambda item: -item[1])
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_SHARE * whole_s]
    scale, unit = unit_of_time(whole_s)
    digits = decimals(scale * whole_s / 1e3)
    bars = [
        Bar(words(name), f"{scale * value:>{digits + 4}.{digits}f} {unit} {value / whole_s:>6.1%}", value / whole_s)
        for name, value in kept
    ]
    critical = sorted(criticality.items(), key=lambda item: -item[1])[:MOST_CRITICAL]
    path = ", ".join(f"{words(name)} {share:.0%}" for name, share in critical if share >= 0.005)
    found: list[Block] = [Bars("Mean step time by component, average GPU", bars)]
    return [*found, Note(f"Critical path: {path}.")] if path else found


def owner_blocks(owner_s: Mapping[str, float], error_s: Mapping[str, float] | None, p95_s: float) -> list[Block]:
    """Blocks on how much p95 would fall without each source of variability.

    Args:
        error_s: of the sources; None where no table of given slowdowns stands below to compare with.
    """
    ranked = sorted(owner_s.items(), key=lambda item: -item[1])
    largest = max((abs(value) for _, value in ranked), default=0.0)
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_OWNER * largest > 0.0][:MOST_OWNERS]
    if not kept:
        return []

    def seconds(name: str, value_s: float) -> str:
        return format_s(value_s, 3) if error_s is None else seconds_with_error(value_s, error_s.get(name, 0.0))

    bars = [Bar(words(n), f"{seconds(n, value)} {value / p95_s:>7.2%}", max(0.0, value) / largest) for n, value in kept]
    return [Bars("Reduction of p95 if one source of variability is removed", bars)]


def given_blocks(given: GivenSlowdowns | None) -> list[Block]:
    """Blocks on given GPUs, the step with nothing else varying, and a row per node; nothing where none are given."""
    if given is None:
        return []
    head = ("node", "slowest GPU", "stage", "replica", "cost in p95", "with all above")
    rest = f"; {given.n_drawn:,} GPUs are drawn" if given.n_drawn else ""
    more = given.n_nodes - len(given.nodes)
    found: list[Block] = [
        Facts(
            "Given slowdowns",
            {
                "given": f"{given.n_gpus:,} GPUs on {given.n_nodes:,} node{'s' if given.n_nodes > 1 else ''}{rest}",
                "step": f"{format_s(given.step_s, 4)} with these and nothing else varying",
            },
        ),
        Table(
            "Cost of nodes: p95 falls by so much with other GPUs, drawn like the fleet's, in their place",
            head,
            [_node(one) for one in given.nodes],
        ),
    ]
    return [*found, Note(f"And {more:,} nodes less slow.")] if more else found


def _node(one: SlowNode) -> tuple[str, ...]:
    """Cells of a node."""
    return (
        f"{one.node} ({one.name})" if one.name else str(one.node),
        f"{one.gpu} x {one.slowdown:.3f}" + (f", links x {one.link_slowdown:.2f}" if one.link_slowdown != 1.0 else ""),
        _numbers(one.stages),
        _numbers(one.replicas),
        seconds_with_error(one.cost_s, one.cost_error_s),
        seconds_with_error(one.with_slower_s, one.with_slower_error_s),
    )


def _numbers(found: tuple[int, ...]) -> str:
    """Lists numbers as "0-3" or "1, 4"; few of many."""
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found[:MOST_NUMBERS])) + (", ..." if len(found) > MOST_NUMBERS else "")


def seconds_with_error(value_s: float, error_s: float) -> str:
    """Writes both in one unit; 0 where neither is anything."""
    return "0" if value_s == 0.0 == error_s else time_with_error(value_s, error_s)
