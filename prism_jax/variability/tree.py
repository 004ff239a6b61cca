"""Variability: how much every kind of work varies, over GPUs and nodes, over steps, and from call to call.

Of a fitted tree over another one, what was measured replaces what was assumed, and the rest stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..core.bounds import MOST_EXPONENT, MOST_STALL, MOST_STALLS
from ..core.errors import Problem, SpecError
from ..core.kernels import COLLECTIVES, KERNEL_CLASSES, varying_classes
from ..core.registry import did_you_mean
from .families import CONSTANT, Constant, Family, check_in_range

PARTS = ("gpu", "node", "regime", "call")


@dataclass(frozen=True)
class ClassVariability:
    """Slowdown factors (mean one) of one kernel class.

    Attributes:
        gpu: persistent, one score per GPU (compute classes); a slow chip is slow in every class, by this class's amount.
        node: persistent, one score per node; for communication classes the node's links.
        regime: one score per step, shared by every rank and every communication class.
        call: residual, one draw per op of a pipeline stage and GPU (compute) or group (communication).
    """

    gpu: Family = CONSTANT
    node: Family = CONSTANT
    regime: Family = CONSTANT
    call: Family = CONSTANT

    @property
    def is_zero(self) -> bool:
        """Whether no part varies."""
        return all(isinstance(getattr(self, part), Constant) for part in PARTS)

    def scaled(self, k: float) -> ClassVariability:
        """Returns the same with every spread times `k`."""
        return ClassVariability(**{part: getattr(self, part).scaled(k) for part in PARTS})

    def without(self, parts: tuple[str, ...]) -> ClassVariability:
        """Returns the same with `parts` constant."""
        return replace(self, **dict.fromkeys(parts, CONSTANT))


@dataclass(frozen=True)
class Stall:
    """A rare one-sided delay of a whole step, as a fraction of the step.

    Attributes:
        step_prob: probability per step whatever the size of the job.
        gpu_prob: probability per GPU and step, on top.
        mean_fraction: mean of the (exponential) extra time over the step time.
        gpu_exponent: power of the number of GPUs with which the hazard grows; 1 where every GPU adds its own.
    """

    step_prob: float = 0.0
    gpu_prob: float = 0.0
    mean_fraction: float = 0.0
    gpu_exponent: float = 1.0

    def __post_init__(self) -> None:
        check_in_range(self, "step_prob", 0.0, 1.0)
        check_in_range(self, "gpu_prob", 0.0, 1.0)
        check_in_range(self, "gpu_exponent", 0.0, MOST_EXPONENT)
        check_in_range(self, "mean_fraction", 0.0, MOST_STALL)

    def prob(self, n_devices: int) -> float:
        """Probability that a step of `n_devices` devices stalls."""
        return 1.0 - (1.0 - self.step_prob) * (1.0 - self.gpu_prob) ** (n_devices**self.gpu_exponent)


@dataclass(frozen=True)
class Variability:
    """The whole tree.

    Attributes:
        classes: kernel class -> its factors; a class that is absent does not vary, or as the class that its `KernelClass` names.
        step: factor of the whole step, one draw per step.
        step_ar1: lag-1 autocorrelation of the step factor's normal score; matters over many steps only.
        stalls: independent kinds of rare stalls.
    """

    name: str = "none"
    classes: Mapping[str, ClassVariability] = field(default_factory=dict)
    step: Family = CONSTANT
    step_ar1: float = 0.0
    stalls: tuple[Stall, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        for name, factors in self.classes.items():
            _check_class(name)
            _check_parts(name, factors)
        if len(self.stalls) > MOST_STALLS:
            raise SpecError.of(Problem("stalls", f"{len(self.stalls)} kinds, but there may be at most {MOST_STALLS}"))
        if not -1.0 < self.step_ar1 < 1.0:
            text = f"{self.step_ar1:g}, but an autocorrelation must lie between -1 and 1"
            raise SpecError.of(Problem("step_ar1", text))

    def of(self, kernel_class: str) -> ClassVariability:
        """Factors of `kernel_class`, or of the class that it varies like; all constant where the tree says nothing."""
        if kernel_class in self.classes:
            return self.classes[kernel_class]
        if kernel_class in KERNEL_CLASSES and (like := KERNEL_CLASSES.named(kernel_class).varies_like):
            return self.of(like)
        return ClassVariability()

    @property
    def is_zero(self) -> bool:
        """Whether every step takes exactly its noise-free time."""
        quiet = all(stall.mean_fraction == 0.0 or stall.prob(1) == 0.0 for stall in self.stalls)
        return quiet and isinstance(self.step, Constant) and all(c.is_zero for c in self.classes.values())

    def without(self, *kernel_classes: str) -> Variability:
        """The tree with `kernel_classes` constant; step factor and stalls stay."""
        for name in kernel_classes:
            _check_class(name)
        return replace(self, classes=self._kept(lambda name: name not in kernel_classes))

    def only(self, *kernel_classes: str) -> Variability:
        """The tree with nothing but `kernel_classes`: no other class, no step factor, no stalls."""
        for name in kernel_classes:
            _check_class(name)
        return replace(
            self, classes=self._kept(lambda name: name in kernel_classes), step=CONSTANT, step_ar1=0.0, stalls=()
        )

    def scaled(self, k: float) -> Variability:
        """Every spread, and the size of every stall, times `k >= 0`; `scaled(0)` does not vary."""
        classes = {name: c.scaled(k) for name, c in self.classes.items()}
        stalls = tuple(replace(s, mean_fraction=s.mean_fraction * k) for s in self.stalls) if k > 0.0 else ()
        return replace(self, classes=classes, step=self.step.scaled(k), stalls=stalls)

    def _kept(self, keeps: Callable[[str], bool]) -> dict[str, ClassVariability]:
        """The classes that `keeps` says; those that vary like another one are written out, so that they stay as they are."""
        borrowed = [each.name for each in KERNEL_CLASSES if each.varies_like and each.name not in self.classes]
        kept = {name: factors for name, factors in self.classes.items() if keeps(name)}
        return kept | {name: self.of(name) if keeps(name) else ClassVariability() for name in borrowed}

    def spread(self) -> dict[str, float]:
        """cv of everything that varies, by path: {"gemm.gpu": 0.011, ..., "step": 0.0013}."""
        cvs = {f"{name}.{part}": getattr(c, part).cv for name, c in self.classes.items() for part in PARTS}
        return {path: cv for path, cv in (cvs | {"step": self.step.cv}).items() if cv > 0.0}


def _check_class(name: str) -> None:
    if name not in varying_classes():
        raise SpecError(f"unknown kernel class {name!r}{did_you_mean(name, varying_classes())}")


def _check_parts(name: str, factors: ClassVariability) -> None:
    """Refuses a part that would be ignored."""
    part = "gpu" if name in COLLECTIVES else "regime"  # nothing reads it
    if not isinstance(getattr(factors, part), Constant):
        remedy = (
            "a slow GPU slows compute classes, a slow link is `node`"
            if part == "gpu"
            else "what slows the compute of a whole step is `step`, outside the classes"
        )
        raise SpecError.at((name, part), f"has no meaning there: {remedy}")


def overlay(base: Variability, fitted: Variability) -> Variability:
    """`base` with every part of `fitted` that varies in its place; its stalls where `fitted` has any."""
    classes = dict(base.classes)
    for name, factors in fitted.classes.items():
        given = {part: getattr(factors, part) for part in PARTS if not isinstance(getattr(factors, part), Constant)}
        classes[name] = replace(classes.get(name, ClassVariability()), **given)
    has_step = not isinstance(fitted.step, Constant)
    return Variability(
        name=f"{base.name} with {fitted.name}",
        classes=classes,
        step=fitted.step if has_step else base.step,
        step_ar1=fitted.step_ar1 if has_step else base.step_ar1,
        stalls=fitted.stalls or base.stalls,
        source="; ".join(text for text in (base.source, fitted.source) if text),
    )
