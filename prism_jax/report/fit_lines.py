"""A fit of variability as lines of plain text. Takes the object that `prism-jax fit --json` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .quantity import bar

BAR_WIDTH = 24
SKIPPED = ("variance_of", "variance_shares", "notes")


def fit_lines(summary: Mapping[str, Any]) -> list[str]:
    """Verdict, rows, shares of variance, parameters, and scores of what was left out."""
    lines = [
        f"{summary['model']} fitted by {summary['method']} in {summary['elapsed_s']:.1f} s: {summary['verdict']['sentence']}",
        *_hygiene(summary["hygiene"]),
    ]
    if summary["variance_shares"]:
        lines += ["", f"share of the variance of {summary['variance_of']}"]
        width = max(12, *map(len, summary["variance_shares"]))
        for name, share in summary["variance_shares"].items():
            lines.append(f"  {name:<{width}} {share:>6.1%}  {bar(share, BAR_WIDTH)}")
    lines += ["", "what it says (median, 90 % interval)"]
    lines += [f"  {line}" for line in _tree({k: v for k, v in summary["about"].items() if k not in SKIPPED})]
    lines += [f"note: {note}" for note in summary["about"].get("notes", ())]
    for name, title in (
        ("holdout", "groups left out"),
        ("checks", "fitted rows, replicated"),
        ("loo", "leave one out"),
    ):
        if summary.get(name):
            lines += ["", title, *(f"  {line}" for line in _tree(summary[name]))]
    return lines


def _hygiene(hygiene: Mapping[str, Any]) -> list[str]:
    dropped = sorted(hygiene["dropped"].items(), key=lambda item: -item[1])
    return [
        f"{hygiene['n_read']:,} rows read, {hygiene['n_kept']:,} kept",
        *(f"  {n:,} dropped: {rule}" for rule, n in dropped),
        *(f"note: {note}" for note in hygiene["notes"]),
    ]


def _tree(value: Mapping[str, Any]) -> Iterator[str]:
    """Nested values, indented; an interval on one line."""
    for name, part in value.items():
        label = str(name).replace("_", " ")
        if isinstance(part, Mapping) and set(part) == {"median", "p5", "p95"}:
            yield f"{label:<28} {part['median']:.4g}   ({part['p5']:.4g} to {part['p95']:.4g})"
        elif isinstance(part, Mapping):
            yield label
            yield from (f"  {line}" for line in _tree(part))
        elif isinstance(part, (list, tuple)):
            yield f"{label:<28} {', '.join(_number(item) for item in part)}"
        elif part is not None:
            yield f"{label:<28} {_number(part)}"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
