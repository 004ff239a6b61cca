"""Jobs to measure as lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping

from ..types.site import SuggestionReport
from .site_calibration import WORDS

MOST_PARTS = 3  # that are named per job


def lines(report: SuggestionReport) -> list[str]:
    """One line per job: its step, how many jobs it stands for, and what most of its time hangs on."""
    found = report.suggested
    width = max(3, *(len(one.id) for one in found))
    return [
        f"measure these {len(found)} of {report.n_job} jobs first; the other jobs are similar to them",
        "",
        f"{'job':<{width}}   step time  represents  largest components",
        *(f"{one.id:<{width}}  {one.noise_free_s:>8.4g} s  {one.stands_for:>10}  {_parts(one.parts)}" for one in found),
    ]


def _parts(parts: Mapping[str, float]) -> str:
    largest = sorted((knob for knob in parts if knob in WORDS), key=lambda knob: -parts[knob])[:MOST_PARTS]
    return ", ".join(f"{WORDS[knob]} {parts[knob]:.0%}" for knob in largest if parts[knob] >= 0.01)
