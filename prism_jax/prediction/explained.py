"""Where the time of a step goes, what owns its tail, and what given slowdowns of GPUs cost: text of a prediction."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.text_table import bar, decimals, time_with_error, unit_of_time
from ..core.units import format_s
from ..explain.types import GivenSlowdowns, SlowNode, words

SMALLEST_SHARE = 0.001  # of the step; smaller parts are not printed
SMALLEST_OWNER = 0.005  # of the largest; below, Monte Carlo noise
MOST_OWNERS = 5
MOST_CRITICAL = 4
MOST_NUMBERS = 4  # of stages or replicas of a node


def breakdown_lines(parts_s: Mapping[str, float], criticality: Mapping[str, float]) -> list[str]:
    """Writes parts of the mean step with bars, largest first, and the shares of the critical path; nothing without parts."""
    if not parts_s:
        return []
    whole_s = sum(parts_s.values())
    ranked = sorted(parts_s.items(), key=lambda item: -item[1])
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_SHARE * whole_s]
    scale, unit = unit_of_time(whole_s)
    digits = decimals(scale * whole_s / 1e3)
    width = max(len(words(name)) for name, _ in kept)
    rows = (f"  {words(name):<{width}}  {scale * value:>{digits + 4}.{digits}f} {unit}" for name, value in kept)
    shares = (value / whole_s for _, value in kept)
    drawn = (f"{row} {share:>6.1%}  {bar(share)}" for row, share in zip(rows, shares, strict=True))
    critical = sorted(criticality.items(), key=lambda item: -item[1])[:MOST_CRITICAL]
    path = ", ".join(f"{words(name)} {share:.0%}" for name, share in critical if share >= 0.005)
    return ["mean step time by component, average GPU", *drawn, *([f"  critical path: {path}"] if path else [])]


def owner_lines(owner_s: Mapping[str, float], error_s: Mapping[str, float] | None, p95_s: float) -> list[str]:
    """Writes by how much p95 would fall without each owner's variability.

    Args:
        error_s: of the owners; None where no table of given slowdowns stands below to compare with.
    """
    ranked = sorted(owner_s.items(), key=lambda item: -item[1])
    largest = max((abs(value) for _, value in ranked), default=0.0)
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_OWNER * largest > 0.0][:MOST_OWNERS]
    if not kept:
        return []
    width = max(len(words(name)) for name, _ in kept)

    def seconds(name: str, value_s: float) -> str:
        return format_s(value_s, 3) if error_s is None else f"{seconds_with_error(value_s, error_s.get(name, 0.0)):>18}"

    return [
        "reduction of p95 if one source of variability is removed",
        *(f"  {words(name):<{width}}  {seconds(name, value):>9} {value / p95_s:>7.2%}" for name, value in kept),
    ]


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
        f"{one.gpu} x {one.slowdown:.3f}" + (f", links x {one.link_slowdown:.2f}" if one.link_slowdown != 1.0 else ""),
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
