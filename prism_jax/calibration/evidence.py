"""Evidence near a job: how many measured rows, of how many sources, how far off they were when left out; how wide
intervals must be for that.

`presets/evidence.json` holds counts and errors by *cell*, not rows: what measured jobs have in common, in coarse steps. It is
made by `experiments/calibrate_steps/evidence.py` from a blind score. Cells that agree with a job in everything are taken first,
then those that differ in the least important things, until enough rows are found.

What makes a prediction less certain than others (`REASONS`) widens its interval by a factor each, fitted to that score by the
script. Jobs without a reason are *known*, others *near*; *far* is a job with a reason under which errors are larger, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import NamedTuple

import numpy as np

from ..core.arrays import Floats
from ..core.report import shown
from ..framework.frameworks import style_of
from ..plan.fields import QUANTISED
from ..plan.plan import ParallelPlan
from ..system.catalog import load_json
from ..system.hardware import Cluster
from ..workload.base.workload import Workload
from .key import CalibrationKey

ENOUGH_ROWS, ENOUGH_SOURCES = 8, 2
FAR = 4  # a difference of this weight or more is an extrapolation
LEVELS_OF_SIZE = (8, 64, 512, 4096)  # devices: up to a node, a few nodes, ...
LEVELS_OF_LENGTH = (2048, 8192, 32768)  # tokens


class Cell(NamedTuple):
    """Properties that the rows of a cell have in common."""

    generation: str
    framework: str
    style: str
    precision: str  # 16 bits, 8 bits and less, 32 bits
    experts: bool
    trained: str  # full, adapters
    tensor: bool
    pipeline: bool
    sharded: bool
    size: int  # index of the first of LEVELS_OF_SIZE that holds the devices
    length: int  # the same of LEVELS_OF_LENGTH


# What a difference weighs, and what a person calls it.
WEIGHTS = {
    "generation": (8, "device generation"),
    "trained": (6, "adapters"),
    "experts": (6, "experts"),
    "style": (4, "style of the software"),
    "precision": (4, "precision"),
    "framework": (2, "framework"),
    "size": (2, "number of GPUs"),
    "length": (2, "sequence length"),
    "sharded": (2, "sharding of parameters"),
    "pipeline": (2, "pipeline parallelism"),
    "tensor": (1, "tensor parallelism"),
}


@dataclass(frozen=True)
class CellScore:
    """Rows of one cell, each predicted by a calibration without its source.

    Attributes:
        errors: absolute relative errors, one per source: the median of its rows here.
        inside: share of the rows in their 90% interval, one per source.
        rows: of each source.
    """

    cell: Cell
    rows: tuple[int, ...]
    errors: tuple[float, ...]
    inside: tuple[float, ...]


CLASSES = KNOWN, NEAR, FAR_OFF = "known", "near", "far"
FEW_ALIKE, FEW_OF_GENERATION = 4, 3  # other sources of its generation and framework (below: half), of its generation
NETWORK = (0.05, 0.15)  # shares of the step between which the network comes to count
REASONS = {  # class, and why
    "framework": (NEAR, f"framework not stated, or fewer than {FEW_ALIKE} sources measured it on this generation"),
    "adapters": (NEAR, "the model is trained by adapters"),
    "experts": (FAR_OFF, "the model has experts"),
    "generation": (FAR_OFF, f"fewer than {FEW_OF_GENERATION} sources measured this device generation"),
    "network": (
        FAR_OFF,
        "much of the step is communication between nodes, whose network was not measured (`prism-jax fit collectives`)",
    ),
}
SHORT = {  # reason -> the same in few words
    "framework": "framework rarely measured",
    "adapters": "trained by adapters",
    "experts": "experts",
    "generation": "device rarely measured",
    "network": "network not measured",
}
MEANING = {
    KNOWN: "nothing widens the interval",
    NEAR: "a wider interval than usual",
    FAR_OFF: "a wider interval and larger errors than usual",
}


@dataclass(frozen=True)
class WidthLaw:
    """Law of the width of an interval, by the evidence near a job.

    Attributes:
        usual: logarithm of the factor of what the calibration itself leaves open, of a job without a reason to doubt.
        effects: what each of `REASONS` adds to it.
        n_sources: measured ones, of "generation" and of "generation framework".
        unsaid: factor of the logarithm of what a job leaves unsaid: odds are stated, how wide they prove is measured.
    """

    usual: float
    effects: Mapping[str, float]
    n_sources: Mapping[str, int]
    unsaid: float = 1.0

    def reasons(self, setting: CalibrationKey, has_experts: bool, network_share: float) -> dict[str, float]:
        """Degrees to which `REASONS` hold, 0 to 1; those that do not are left out.

        Args:
            network_share: of the step, 0 to 1; see `surrogate.network_share`.
        """
        low, high = NETWORK
        alike = self.n_sources.get(f"{setting.generation} {setting.framework}", 0)
        found = {
            "framework": 1.0 / sqrt(1.0 + alike),  # as the level of a framework is known by its sources
            "adapters": float(setting.has_adapters),
            "experts": float(has_experts),
            "generation": float(self.n_sources.get(setting.generation, 0) < FEW_OF_GENERATION),
            "network": min(max((network_share - low) / (high - low), 0.0), 1.0),
        }
        return {name: much for name, much in found.items() if much > 0.0}

    def factors(self, setting: CalibrationKey, has_experts: Sequence[bool], network_share: Floats) -> Floats:
        """[row] factors of logarithmic widths; 1 of models that are not transformers, which have widths of their own."""
        if setting.workload:
            return np.ones(len(network_share))
        found = [self.reasons(setting, *own) for own in zip(has_experts, network_share.tolist(), strict=True)]
        return np.exp([log_factor(self.usual, self.effects, one) for one in found])


def log_factor(usual: float, effects: Mapping[str, float], reasons: Mapping[str, float]) -> float:
    """Logarithm of a width for these reasons: at most the effect of the two largest, as hardly any measured row has more."""
    most = sum(sorted(effects.values())[-2:])
    return usual + min(sum(effects[name] * much for name, much in reasons.items()), most)


def class_of(reasons: Mapping[str, float]) -> str:
    """Known, near or far; a reason that holds by less than half makes no class."""
    classes = {REASONS[name][0] for name, much in reasons.items() if much >= 0.5}
    return FAR_OFF if FAR_OFF in classes else NEAR if classes else KNOWN


def why(reasons: Mapping[str, float]) -> tuple[str, ...]:
    """The reasons in words, those of *far* in front; that few measured a generation says the same of its frameworks."""
    held = [name for name, much in reasons.items() if much >= 0.5]
    ranked = sorted(held, key=lambda name: REASONS[name][0] != FAR_OFF)
    return tuple(REASONS[name][1] for name in ranked if name != "framework" or "generation" not in held)


@cache
def width_law(left_out: str = "") -> WidthLaw:
    """The law as fitted to all sources but one, which its counts lack, too; of a name that is none, to all of them."""
    plain = load_json(__name__.rpartition(".")[0], "evidence.json")
    names, fits = plain["sources"], plain["width"]
    found: dict[str, set[str]] = {}
    for cell in plain["cells"]:
        generation, framework = cell["cell"][:2]
        own = {names[number] for number in cell["sources"]} - {left_out}
        for key in (generation, f"{generation} {framework}"):
            found.setdefault(key, set()).update(own)
    usual, *effects, unsaid = fits["without"].get(left_out, fits["all"])
    counts = {key: len(own) for key, own in found.items()}
    return WidthLaw(usual, dict(zip(REASONS, effects, strict=True)), counts, unsaid)


@dataclass(frozen=True)
class Evidence:
    """Measured rows near a job.

    Attributes:
        n_rows, n_sources: found.
        median_error: mean over sources of the source's median error when it was left out; None without rows.
        inside: the same of the share inside the 90% interval.
        differs: in what the rows differ from the job, in words, most important first.
        is_extrapolated: whether that is something that changes the answer.
        kind: known, near or far, which decides how wide the interval is; empty where that is not known.
        why: the reasons for which it is not known, in words.
    """

    n_rows: int
    n_sources: int
    median_error: float | None
    inside: float | None
    differs: tuple[str, ...]
    is_extrapolated: bool
    kind: str = ""
    why: tuple[str, ...] = ()

    @property
    @shown
    def sentence(self) -> str:
        """Sentence for people."""
        return f"{self.known}; {self.nearest}" if self.kind else self.nearest

    @property
    def known(self) -> str:
        """Known, near or far, what that means, and why; empty where that is not known."""
        if not self.kind:
            return ""
        meaning = f"{self.kind} ({MEANING[self.kind]})"
        return f"{meaning}: {'; '.join(self.why)}" if self.why else meaning

    @property
    def short(self) -> str:
        """Measured runs near the job and how far their predictions were off, for one line."""
        if self.median_error is None:
            return "no measured run is near this job: the interval is that of all measured ones"
        alike = "nearest" if self.is_extrapolated else "similar"
        runs = f"{self.n_rows:,} {alike} run{'s' * (self.n_rows > 1)}"
        sources = f"{self.n_sources} source{'s' * (self.n_sources > 1)}"
        return f"{runs} ({sources}), held out: {self.median_error:.0%} off (median)"

    @property
    def why_wide(self) -> str:
        """Reasons why the interval is wider than usual, in few words; empty where it is not."""
        words = {REASONS[name][1]: short for name, short in SHORT.items()}
        return ", ".join(words[one] for one in self.why if one in words)

    @property
    def nearest(self) -> str:
        """Sentence on measured runs near the job: how many, how they differ from it, and how far off they were when left out."""
        if self.median_error is None or self.inside is None:
            return "no measured run is near this job: its interval rests on the spread between all measured ones"
        n_rows = f"{self.n_rows:,} measured runs of {self.n_sources} source{'s' if self.n_sources > 1 else ''}"
        other = f" (other {', '.join(self.differs)})" if self.differs else ""
        scored = f"off by {self.median_error:.0%} when left out, {self.inside:.0%} of them inside the 90% interval"
        return f"{'extrapolated: nearest are ' if self.is_extrapolated else ''}{n_rows} near this job{other}: {scored}"


def cell_of(model: Workload, cluster: Cluster, plan: ParallelPlan, framework: str) -> Cell:
    """The cell that a job belongs to."""
    return Cell(
        generation=cluster.device.generation,
        framework=framework,
        style=style_of(framework),
        precision="8 bits" if plan.dtype in QUANTISED else "32 bits" if plan.dtype == "fp32" else "16 bits",
        experts=model.has_experts,
        trained="adapters" if getattr(model, "adapters", None) is not None else "full",
        tensor=plan.tp > 1,
        pipeline=plan.pp > 1,
        sharded=plan.shard_group > 1,
        size=bisect_left(LEVELS_OF_SIZE, plan.n_devices),
        length=bisect_left(LEVELS_OF_LENGTH, plan.seq_len),
    )


def evidence(
    own: Cell, cells: Sequence[CellScore] | None = None, reasons: Mapping[str, float] | None = None
) -> Evidence:
    """Finds the measured runs near a job of that cell.

    Args:
        cells: the scored cells; None: those of the shipped calibration.
        reasons: why its interval is wide, from `WidthLaw.reasons`; None: no law says it.
    """
    known = shipped_cells() if cells is None else cells
    ranked = sorted(((_distance(own, one.cell), one) for one in known), key=lambda pair: pair[0])
    taken: list[CellScore] = []
    farthest = 0
    for distance, one in ranked:
        n_rows, n_sources = sum(sum(each.rows) for each in taken), sum(len(each.rows) for each in taken)
        if distance > farthest and n_rows >= ENOUGH_ROWS and n_sources >= ENOUGH_SOURCES:
            break
        if distance >= WEIGHTS["generation"][0] and taken:
            break
        taken.append(one)
        farthest = distance
    found = _summary(own, taken, farthest)
    return found if reasons is None else replace(found, kind=class_of(reasons), why=why(reasons))


def _summary(own: Cell, taken: Sequence[CellScore], farthest: int) -> Evidence:
    if not taken:
        return Evidence(0, 0, None, None, (), True)
    errors = [error for one in taken for error in one.errors]
    inside = [share for one in taken for share in one.inside]
    names = [
        words
        for name, (_, words) in WEIGHTS.items()
        if all(getattr(one.cell, name) != getattr(own, name) for one in taken)
    ]
    return Evidence(
        n_rows=sum(sum(one.rows) for one in taken),
        n_sources=len(errors),
        median_error=sum(errors) / len(errors),
        inside=sum(inside) / len(inside),
        differs=tuple(names),
        is_extrapolated=farthest >= FAR,
    )


def _distance(one: Cell, other: Cell) -> int:
    return sum(weight for name, (weight, _) in WEIGHTS.items() if getattr(one, name) != getattr(other, name))


@cache
def shipped_cells() -> tuple[CellScore, ...]:
    """Cells of the blind score of the shipped calibration."""
    cells = load_json(__name__.rpartition(".")[0], "evidence.json")["cells"]
    return tuple(
        CellScore(Cell(*one["cell"]), *(tuple(one[name]) for name in ("rows", "errors", "inside"))) for one in cells
    )
