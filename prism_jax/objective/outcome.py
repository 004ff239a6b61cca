"""Outcome: what an objective may look at: samples of a plan's step time, and what else is known of the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import DataError

# Arrays are those of NumPy or of JAX, whichever the samples are: an objective runs on the host and inside jitted code.
Array = Any


@dataclass(frozen=True)
class PlanFacts:
    """What is known of a plan besides its step time: numbers, or arrays [plan]; None where it is not known.

    Attributes:
        n_devices: GPUs that the plan occupies.
        samples_per_step: training samples (sequences) of a step.
        tokens_per_step: tokens of a step.
        price_per_gpu_hour: price of one GPU for an hour, in any currency.
    """

    n_devices: Array | None = None
    samples_per_step: Array | None = None
    tokens_per_step: Array | None = None
    price_per_gpu_hour: Array | None = None


@dataclass(frozen=True)
class Outcome:
    """Step times of a plan, or of several along leading axes.

    Attributes:
        samples_s: [..., sample] step times, seconds, in any order.
        weight: [..., sample] or [sample] weights of the samples, not negative, in any scale; None if they are equally likely.
        plan: what else is known of the plan.
    """

    samples_s: Array
    weight: Array | None = None
    plan: PlanFacts = field(default_factory=PlanFacts)

    @property
    def xp(self) -> Any:
        """The array module of the samples: `numpy` or `jax.numpy`."""
        return self.samples_s.__array_namespace__()

    def known(self, fact: str) -> Array:
        """A field of `plan` that an objective cannot do without.

        Raises:
            DataError: it is not known.
        """
        value = getattr(self.plan, fact)
        if value is None:
            raise DataError(f"the objective needs {fact}, which is not given")
        return value
