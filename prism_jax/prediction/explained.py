"""Blocks of a prediction on where the time of a step goes, what makes its tail, and what given slowdowns of GPUs cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..core.page import Bar, Bars, Block, Facts, Note, Table, waterfall
from ..core.readable import counted, decimals, some, time_with_error, unit_of_time, with_error
from ..core.units import format_s
from ..explain.types import Attribution, GivenSlowdowns, ShapleyFalls, SlowNode, SobolIndices, words

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
    return [
        Bars("Mean step time by component, average GPU", waterfall(bars)),
        Note(f"Critical path: {path}." if path else ""),
    ]


def owner_bars(owner_s: Mapping[str, float], error_s: Mapping[str, float] | None, p95_s: float) -> Bars:
    """Bars of how much p95 would fall without each source of variability; none where nothing raises it.

    Args:
        error_s: of the sources; None where no table of given slowdowns stands below to compare with.
    """
    ranked = sorted(owner_s.items(), key=lambda item: -item[1])
    largest = max((abs(value) for _, value in ranked), default=0.0)
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_OWNER * largest > 0.0][:MOST_OWNERS]

    def seconds(name: str, value_s: float) -> str:
        return format_s(value_s, 3) if error_s is None else seconds_with_error(value_s, error_s.get(name, 0.0))

    bars = [Bar(words(n), f"{seconds(n, value)} {value / p95_s:>7.2%}", max(0.0, value) / largest) for n, value in kept]
    return Bars("Reduction of p95 if one source of variability is removed", bars)


NORMAL_95 = 1.96  # standard errors to either side


def attribution_blocks(found: Attribution | None) -> list[Block]:
    """Tables of what sources explain of the spread and of slow steps, and of the seconds of p95; nothing unless asked for."""
    if found is None or not found.step_time.first:
        return []
    time, slow = found.step_time, found.slow_step
    columns = {
        "source": words,
        "alone": lambda name: _share(time, name),
        "and together": lambda name: _share(time, name, total=True),
        "of slow steps: alone": lambda name: _share(slow, name),
        "of slow steps: together": lambda name: _share(slow, name, total=True),
    }
    together = {
        "step time": f"{_remainder(time)} of its variance is made by several sources together",
        "steps beyond p95": f"{_remainder(slow)} of the variance of being one",
    }
    title = "Variance of the step time by independent source: Sobol indices (± Monte Carlo error)"
    return [Table.of(title, time.first, columns), Facts("", together), *_shapley_blocks(found.p95)]


def _share(own: SobolIndices, name: str, *, total: bool = False) -> str:
    """An index in per cent, and its error."""
    value, error = (own.total, own.total_error) if total else (own.first, own.first_error)
    return _percent_with_error(value[name], error[name])


def _percent_with_error(value: float, error: float) -> str:
    return "{} ± {}%".format(*with_error(100.0 * value, 100.0 * error)) if error > 0.0 else f"{100.0 * value:.1f}%"


def _remainder(own: SobolIndices) -> str:
    """The share that sources only make together, with its 95% interval."""
    low, high = (own.remainder + side * NORMAL_95 * own.remainder_error for side in (-1, 1))
    return f"{own.remainder:.1%} (95% interval {low:.1%} to {high:.1%})"


def _shapley_blocks(found: ShapleyFalls) -> list[Block]:
    """Seconds of p95 by owner; nothing where nothing raises it."""
    columns = {
        "owner": words,
        "its part": lambda name: seconds_with_error(found.value_s[name], found.error_s[name]),
        "share": lambda name: f"{found.value_s[name] / found.total_s:.1%}" if found.total_s else "",
        "if it alone varies": lambda name: format_s(found.alone_s[name], 3),
        "if it is removed": lambda name: format_s(found.last_s[name], 3),
    }
    total = seconds_with_error(found.total_s, found.total_error_s)
    title = f"p95 above the step without variability, {total}, by owner: Shapley values"
    others = f"Others: {'; '.join(words(name) for name in found.rest)}." if found.value_s and found.rest else ""
    return [Table.of(title, found.value_s, columns), Note(others)]


def given_blocks(given: GivenSlowdowns | None) -> list[Block]:
    """Blocks on given GPUs, the step with nothing else varying, and a row per node; nothing where none are given."""
    if given is None:
        return []
    rest = f"; {given.n_drawn:,} GPUs are drawn" if given.n_drawn else ""
    facts = {
        "given": f"{given.n_gpus:,} GPUs on {counted(given.n_nodes, 'node')}{rest}",
        "step": f"{format_s(given.step_s, 4)} with these and nothing else varying",
    }
    n_more = given.n_nodes - len(given.nodes)
    return [
        Facts("Given slowdowns", facts),
        Table.of(COST_OF_NODES, given.nodes, NODE),
        Note(f"And {n_more:,} nodes less slow." if n_more else ""),
    ]


COST_OF_NODES = "Cost of nodes: p95 falls by so much with other GPUs, drawn like the fleet's, in their place"
NODE: dict[str, Callable[[SlowNode], str]] = {
    "node": lambda one: f"{one.node} ({one.name})" if one.name else str(one.node),
    "slowest GPU": lambda one: _slowest(one),
    "stage": lambda one: _numbers(one.stages),
    "replica": lambda one: _numbers(one.replicas),
    "cost in p95": lambda one: seconds_with_error(one.cost_s, one.cost_error_s),
    "with all above": lambda one: seconds_with_error(one.with_slower_s, one.with_slower_error_s),
}


def _slowest(one: SlowNode) -> str:
    links = f", links x {one.link_slowdown:.2f}" if one.link_slowdown != 1.0 else ""
    return f"{one.gpu} x {one.slowdown:.3f}{links}"


def _numbers(found: tuple[int, ...]) -> str:
    """Lists numbers as "0-3" or "1, 4"; few of many."""
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]}-{found[-1]}"
    return some([str(one) for one in found], MOST_NUMBERS)


def seconds_with_error(value_s: float, error_s: float) -> str:
    """Writes both in one unit; 0 where neither is anything."""
    return "0" if value_s == 0.0 == error_s else time_with_error(value_s, error_s)
