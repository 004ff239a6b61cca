"""Jobs to measure as lines of plain text. Takes the object that `prism-jax calibrate --suggest --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .calibrate_lines import WORDS

MOST_PARTS = 3  # that are named per job


def suggest_lines(summary: Mapping[str, Any]) -> list[str]:
    """One line per job: its step, how many jobs it stands for, and what most of its time hangs on."""
    found = summary["suggested"]
    width = max(3, *(len(one["id"]) for one in found))
    return [
        f"measure these {len(found)} of {summary['n_job']} jobs first: the others are made of the same parts",
        "",
        f"{'job':<{width}}  step about  stands for  most of its time",
        *(
            f"{one['id']:<{width}}  {one['noise_free_s']:>8.4g} s  {one['stands_for']:>10}  {_parts(one['parts'])}"
            for one in found
        ),
    ]


def _parts(parts: Mapping[str, float]) -> str:
    largest = sorted((knob for knob in parts if knob in WORDS), key=lambda knob: -parts[knob])[:MOST_PARTS]
    return ", ".join(f"{WORDS[knob]} {parts[knob]:.0%}" for knob in largest if parts[knob] >= 0.01)
