"""Training frameworks: plan defaults, kernels, what they hold in memory, and how a published run tells which one it ran on.

`FRAMEWORKS.add(Framework(...))` makes a framework of the caller's own known to job files, tables and the command line.
"""

from __future__ import annotations

from .._core.registry import Registry
from ..errors import SpecError
from ..hints import did_you_mean
from .base import Framework as Framework, PlanDefaults as PlanDefaults
from .capabilities import Capabilities as Capabilities
from .colossalai import COLOSSALAI
from .deepspeed import DEEPSPEED
from .fsdp import FSDP
from .maxtext import JAX
from .megatron import FLAGSCALE, LIBAI, MEGATRON_2021, MEGATRON_CORE, MEGATRON_DEEPSPEED
from .memory_options import MemoryOptions as MemoryOptions
from .mindspore import MINDSPORE
from .nanotron import NANOTRON
from .other import OTHER, UNKNOWN
from .paddle import PADDLE
from .recognition import SourcePattern as SourcePattern

FRAMEWORKS: Registry[Framework] = Registry(
    "framework",
    lambda: (
        MEGATRON_CORE,
        MEGATRON_2021,
        MEGATRON_DEEPSPEED,
        FLAGSCALE,
        LIBAI,
        JAX,
        PADDLE,
        FSDP,
        DEEPSPEED,
        NANOTRON,
        COLOSSALAI,
        MINDSPORE,
        OTHER,
    ),
)


def framework_of(framework: str | Framework) -> Framework:
    """The framework of that name, or the framework itself; an empty name stands for software that is not known.

    Raises:
        SpecError: the name is unknown; names those that are known.
    """
    if isinstance(framework, Framework):
        return framework
    if not framework:
        return UNKNOWN
    if framework not in FRAMEWORKS:
        known = FRAMEWORKS.names
        raise SpecError(
            f"framework {framework!r} is unknown; known are {', '.join(known)}{did_you_mean(framework, known)}"
        )
    return FRAMEWORKS.named(framework)


def style_of(name: str) -> str:
    """`fused`, `eager`, or empty where the framework or its style is not known."""
    return FRAMEWORKS.named(name).style if name in FRAMEWORKS else UNKNOWN.style


def recognised(*, notes: str, table: str, source: str, gpu: str) -> str:
    """Name of the framework that a published run was made with; empty where nothing says.

    Args:
        notes: remarks that stand beside its figures.
        table: path of the table it is from.
        source: publication or repository.
        gpu: accelerator.
    """
    by_rank = sorted(
        ((pattern, framework.name) for framework in FRAMEWORKS for pattern in framework.patterns),
        key=lambda pair: pair[0].rank,
    )
    found = (name for pattern, name in by_rank if pattern.matches(notes=notes, table=table, source=source, gpu=gpu))
    return next(found, "")
