"""A study as lines of plain text: the best plan, how sure that is, what it gains, and the plans behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..units import format_bytes, format_s
from .quantity import decimals, prob, with_error

Found = Mapping[str, Any]
MOST_REASONS = 4


def study_lines(found: Found) -> list[str]:
    """The report, line by line; takes the object that `--json` prints."""
    blocks = [_headline(found), _best(found), _table(found), _infeasible(found), [f"note: {n}" for n in found["notes"]]]
    lines = [line.rstrip() for block in blocks if block for line in (*block, "")]
    return lines[:-1]


def size_lines(found: Found) -> list[str]:
    """The best plan of every cluster size, and which sizes nothing else beats."""
    timed = found["objective_unit"] == "s"
    head = ("GPUs", found["objective"], "GPU-s per step", "energy", "cost", "memory", "plan")
    rows = [
        (
            f"{'*' if size['n_devices'] in found['front'] else ' '} {size['n_devices']:,}",
            format_s(size["value_s"]) if timed else f"{size['value_s']:.4g} {found['objective_unit']}",
            f"{size['n_devices'] * (size['value_s'] if timed else size['p50_s']):,.0f}",
            f"{size['energy_j'] / 3.6e6:.4g} kWh",
            f"{size['cost']:.4g}" if size["cost"] else "-",
            format_bytes(size["memory_bytes"]),
            plan_words(size["plan"]),
        )
        for size in found["sizes"]
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    title = f"{found['job']['name']}: {found['job']['model']} on {found['job']['device']}, best plan by {found['objective']}"
    last = (
        "* no other size is better in all of time, GPUs, energy and cost; energy and cost are those of the median step"
    )
    return [title, "", *(_joined(row, widths) for row in (head, *rows)), "", last]


def plan_words(plan: Found) -> str:
    """A plan in one line."""
    degrees = " x ".join(f"{axis} {plan[axis]}" for axis in ("tp", "cp", "pp", "dp") if plan[axis] > 1) or "one device"
    pipeline = f", {plan['schedule']}" if plan["pp"] > 1 else ""
    chunks = f" v {plan['virtual_stages']}" if plan["virtual_stages"] > 1 else ""
    return ", ".join([
        degrees + (f", ep {plan['ep']}" if plan["ep"] > 1 else "") + pipeline + chunks,
        f"micro-batch {plan['micro_batch']} ({plan['n_micro_batch']} of them)",
        f"recompute {plan['recompute']}",
        _sharding(plan),
        *(["sequence parallel"] if plan["sequence_parallel"] else []),
        f"overlap {_overlap(plan)}",
    ])  # fmt: skip


def _headline(found: Found) -> list[str]:
    return [
        f"{found['job']['name']}: {found['job']['model']} on {found['job']['n_devices']:,} x {found['job']['device']}",
        f"{found['n_plans']:,} plans, {found['n_feasible']:,} feasible, {found['n_simulated']:,} simulated, "
        f"{found['n_raced']:,} raced on {found['objective']} in {format_s(found['elapsed_s'])} ({found['method']})",
    ]


def _best(found: Found) -> list[str]:
    best, gain = found["best"], found["gain"]
    digits = decimals(max(best["p99_s"] - best["p50_s"], best["value_error_s"]) / 30)
    value, error = with_error(best["value_s"], best["value_error_s"])
    lines = [
        f"best: {plan_words(best['plan'])}",
        f"  p50 {best['p50_s']:.{digits}f} s, p95 {best['p95_s']:.{digits}f} s, p99 {best['p99_s']:.{digits}f} s; "
        f"{found['objective']} {value} ± {error} {found['objective_unit']}; without variability {best['step_s']:.{digits}f} s",
        f"  memory {format_bytes(best['memory_bytes'])} of {format_bytes(found['job']['hbm_bytes'])} per device",
        f"  it is the best of the finalists with probability {prob(best['prob_best'])}",
    ]
    if gain is not None:
        low, high = gain["gain_interval"]
        unit = found["objective_unit"]
        times = f"{gain['base_s']:.{digits}f} -> {gain['best_s']:.{digits}f} s"
        if unit != "s":
            times = f"{gain['base_s']:.4g} -> {gain['best_s']:.4g} {unit}"
        lines += [
            f"  gain over the job's own plan: {gain['gain']:.2%} of {found['objective']} (90 % interval {low:.2%} to {high:.2%})",
            f"    {times}, on draws that the search has not seen",
        ]
        if gain["posterior_interval"] is not None:
            low, high = gain["posterior_interval"]
            lines.append(f"  over what the fit leaves open: {low:.2%} to {high:.2%}")
    return lines


def _table(found: Found) -> list[str]:
    top = found["top"]
    head = ("", found["objective"], "behind", "P(best)", "memory", "plan")
    rows = [_row(number, candidate, top[0], found["objective_unit"]) for number, candidate in enumerate(top, start=1)]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [_joined(row, widths) for row in (head, *rows)]
    if sum(candidate["tied"] for candidate in top) > 1:
        lines.append("= the draws do not tell it from the best (2 standard errors)")
    return lines


def _row(number: int, candidate: Found, best: Found, unit: str) -> tuple[str, ...]:
    value, _ = with_error(candidate["value_s"], candidate["value_error_s"])
    behind = candidate["behind_s"] / best["value_s"]
    tie = "=" if candidate["tied"] and number > 1 else " "
    return (
        f"{number}{tie}",
        f"{value} {unit}",
        f"+{behind:.2%}" if number > 1 else "",
        prob(candidate["prob_best"]),
        format_bytes(candidate["memory_bytes"]),
        plan_words(candidate["plan"]),
    )


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    *numbers, words = row
    return "  ".join([*(cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)), words])


def _infeasible(found: Found) -> list[str]:
    reasons = sorted(found["infeasible"].items(), key=lambda item: -item[1])[:MOST_REASONS]
    return ["not feasible:", *(f"  {n:>12,}  {text}" for text, n in reasons)] if reasons else []


def _sharding(plan: Found) -> str:
    if plan["sharding"] == "none":
        return f"ZeRO-{plan['zero_stage']}" if plan["zero_stage"] else "states replicated"
    return plan["sharding"] + (f" in groups of {plan['dp_shard']}" if plan["sharding"] == "hsdp" else "")


def _overlap(plan: Found) -> str:
    """Overlaps that are on; where an axis has one rank there is nothing to overlap."""
    return " ".join(axis for axis, on in plan["overlap"].items() if on and plan[axis] > 1) or "nothing"
