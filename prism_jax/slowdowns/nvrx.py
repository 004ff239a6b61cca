"""Reads the logs of NVIDIA's resiliency extension (NVRx): scores of ranks by GPU and by section.

A score is the rank's best or fastest time over its own, 0 to 1, so that the factor is 1 / score. Relative scores compare ranks of
one report; individual ones compare a rank with its own past, and count only where nothing compares ranks. Callbacks of NeMo,
Lightning and Megatron Bridge print `Rank=76 Node=h100-012 Score=0.94` for the worst and the best ranks, or for all of few; the
report itself prints as a dict, `GPUs relative perf: {0: 1.0, 1: 0.7}`.

Source: documentation of Megatron Bridge on resiliency; NVIDIA/nvidia-resiliency-ext, its example of straggler detection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..tables.csv_rows import number_of
from .readings import DetectorFile, DetectorReadings, SlowdownDetector, UsualValue, place_of

_SECTIONS = re.compile(r"\b[Ss]ections? (relative|individual) perf(?:ormance)?\b.{0,100}?\{(?=['\"])")
_OF_SECTION = re.compile(r"['\"]([^'\"{}]{1,80})['\"]: \{([^{}]{0,1000000})\}")
_HEAD = re.compile(r"\b(GPUs?|[Ss]ection '?[\w./-]{1,60}'?) (relative|individual) perf(?:ormance)?\b(.*)")
_SCORE = re.compile(r"\bRank=(\d{1,9})\s+Node=(\S{1,253})\s+Score=([0-9.]{1,20})")
_PAIR = re.compile(r"(\d{1,9}): ([0-9.eE+-]{1,25})")
_LIST = re.compile(r"\b(Worst|Best) performing \d{1,9}/\d{1,9} ranks")
_WARNING = re.compile(r"STRAGGLER DETECTION WARNING: ")
SIGN = re.compile(rf"{_SCORE.pattern}|(?:GPUs?|[Ss]ections?) (?:relative|individual) perf")
ROUNDING = 0.005  # Score=0.94
NEAR = 0.04  # within which the median score is known well enough to take the middle of its bounds


@dataclass
class _Block:
    """Scores of one report and kind: those of the worst and of the best ranks, or of all."""

    series: str
    scores: dict[int, float] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    lists: dict[str, list[float]] = field(default_factory=dict)
    rounding: float = 0.0

    def add(self, where: str, rank: str, host: str, text: str, name: str = "") -> None:
        """Adds the score of a rank; the first one counts where lists overlap."""
        score = number_of(text)
        number = place_of(where, host, rank=rank).rank
        if number is not None and 0.0 < score <= 100.0 and number not in self.scores:
            self.scores[number], self.hosts[number] = score, host
            self.rounding = max(self.rounding, ROUNDING / score if len(text) <= 4 else 0.0)
            self.lists.setdefault(name, []).append(score)

    def reference(self) -> UsualValue | None:
        """Factor of the usual rank: between the best of the worst and the worst of the best; None where all are listed."""
        if "Worst" not in self.lists or "Best" not in self.lists:
            return None
        low, high = sorted((1.0 / min(self.lists["Best"]), 1.0 / max(self.lists["Worst"])))
        return UsualValue((low * high) ** 0.5 if high <= (1.0 + NEAR) * low else low, low, high)


def read_nvrx(file: DetectorFile) -> DetectorReadings:
    """Scores of a log as factors, one report per block of relative (else individual) scores.

    Raises:
        DataError: cannot be read, or a place that is none.
    """
    blocks: list[_Block] = []
    name, warnings = "", 0
    for number, line in file.lines():
        where = f"{file.name}:{number}"
        if sections := _SECTIONS.search(line):
            for section, scores in _OF_SECTION.findall(line, sections.end() - 1):
                blocks.append(_Block(f"section {section} {sections[1]} score"))
                for rank, text in _PAIR.findall(scores):
                    blocks[-1].add(where, rank, "", text)
        elif head := _HEAD.search(line):
            blocks.append(_Block(f"{head[1].strip().removesuffix('s')} {head[2]} score"))
            name = ""
            for rank, text in _PAIR.findall(head[3]) if "{" in head[3] else ():
                blocks[-1].add(where, rank, "", text)
        elif score := _SCORE.search(line):
            blocks = blocks or [_Block("GPU relative score")]
            blocks[-1].add(where, score[1], score[2], score[3], name)
        elif listed := _LIST.search(line):
            name = listed[1]
        warnings += bool(_WARNING.search(line))
    return _readings(file, blocks, warnings)


def _readings(file: DetectorFile, blocks: Sequence[_Block], warnings: int) -> DetectorReadings:
    """Readings of blocks: the nth block of a series is of the nth report."""
    found, counts = DetectorReadings(file.name), dict[str, int]()
    relative = [block for block in blocks if "relative" in block.series and block.scores]
    for block in relative or blocks:
        counts[block.series] = found.n_report = counts.get(block.series, 0) + 1
        found.rounding = max(found.rounding, block.rounding)
        reference = block.reference()
        if reference is not None:
            found.references[found.n_report - 1, block.series] = reference
        for rank, score in block.scores.items():
            found.add(file.name, place_of(file.name, block.hosts[rank], rank=rank), block.series, "factor", 1.0 / score)
    found.n_report = max(counts.values(), default=0)
    n_own = sum(len(block.scores) for block in blocks) - sum(len(block.scores) for block in relative)
    if relative and n_own:
        found.notes.append(f"{n_own:,} individual scores (a rank against its own past) are not counted")
    if warnings:
        found.notes.append(f"the detector itself warned {warnings:,} times")
    return found


NVRX = SlowdownDetector("nvrx", "logs of NVRx (Rank=0 Node=gpu1 Score=0.95)", read_nvrx, sign=SIGN)
