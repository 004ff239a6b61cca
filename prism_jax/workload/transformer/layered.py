"""What workloads of dense transformer layers have in common, whatever their inputs and losses are.

Layers, embeddings and heads are written for `plan.seq_len` tokens of a sample. An encoder without padding, the decoder of an
encoder-decoder, an encoder of images and a head that reads some of the tokens work on other numbers of them: `with_seq_len`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ...errors import Problem
from ...kernels import COMPUTE_CLASSES
from ...plan.plan import ParallelPlan
from .blocks import DENSE
from .flops import recomputed_flops_per_token, token_flops
from .sizes import TransformerSizes


class DenseLayers:
    """Answers of `Workload` that do not depend on what a model reads and predicts."""

    @property
    def kernel_classes(self) -> tuple[str, ...]:
        """Those that ship with the package."""
        return COMPUTE_CLASSES

    @property
    def has_experts(self) -> bool:
        """All layers are dense."""
        return False

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, int], ...]:
        """Dense parameters only."""
        return ((DENSE, 1),)


def layer_flops(sizes: TransformerSizes, plan: ParallelPlan, *, recomputed: bool) -> float:
    """FLOPs of one sample of `plan.seq_len` tokens through all layers: forward and backward, and what is computed again."""
    forward = token_flops(sizes, plan.seq_len, plan.is_flash).layers
    again = recomputed_flops_per_token(sizes, plan, plan.is_flash) if recomputed else 0.0
    return plan.seq_len * (3.0 * forward + again)


def sequence_problems(plan: ParallelPlan) -> Iterator[Problem]:
    """A model of sequences needs their length."""
    if plan.seq_len < 1:
        yield Problem("seq_len", "is missing", is_missing=True)


class _WithLength:
    """`plan` with another `seq_len`; everything else is asked of the plan itself, so that a plan that notes what is read does."""

    def __init__(self, plan: ParallelPlan, seq_len: float) -> None:
        self._plan = plan
        self.seq_len = seq_len

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def with_seq_len(plan: ParallelPlan, seq_len: float) -> ParallelPlan:
    """`plan` where a sample has `seq_len` tokens, a mean that need not be whole."""
    return cast(ParallelPlan, _WithLength(plan, seq_len))
