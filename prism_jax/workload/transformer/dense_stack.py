"""Stacks of equal dense layers, which encoders of text, encoder-decoders and models over patches of an image have in common.

Layers, embeddings and heads are written for `plan.seq_len` tokens of a sample. An encoder without padding, the decoder of an
encoder-decoder, an encoder of images and a head that reads some of the tokens work on other numbers of them: `with_seq_len`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

from ...core.errors import Problem
from ...plan.plan import ParallelPlan
from ..base.workload import BlockRun, Split, WorkloadDefaults
from .blocks import EMBEDDING, HEAD
from .params import recomputed_flops_per_token, token_flops
from .shard import Shard
from .sizes import TransformerSizes
from .spec import sure_software


class DenseStack(WorkloadDefaults):
    """Answers of `Workload` for an embedding, equal layers and a head; a subclass is a frozen dataclass."""

    n_layers: int
    hidden: int
    n_heads: int
    layer_kind = "layer"  # kind of block

    @cached_property
    @abstractmethod
    def sizes(self) -> TransformerSizes:
        """Sizes of the layers, as a transformer's."""

    def inside(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample that the layers see."""
        return plan

    @property
    def sure_software(self) -> dict[str, str]:
        """Choices of the software that the architecture leaves no room for."""
        return sure_software(self.sizes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Blocks in order: embedding, layers, head."""
        return stacked(BlockRun(self.layer_kind, self.n_layers))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Hidden states of a micro-batch, of all tensor-parallel ranks together."""
        return plan.element_bytes * Shard.of(self.sizes, self.inside(plan)).tokens * self.hidden

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads, tokens of a sequence."""
        return {
            "tp": Split(self.n_heads, "attention heads"),
            "cp": Split(plan.seq_len, "tokens of a sequence"),
            "ep": Split(1, "experts"),
        }

    def deeper(self, n: int) -> Self:
        """Returns the same model with `n` more layers."""
        return replace(self, n_layers=self.n_layers + n)  # pyright: ignore[reportArgumentType]  (specs are dataclasses)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """The plan must say how long sequences are."""
        if plan.seq_len < 1:
            yield Problem("seq_len", "is missing", is_missing=True)


def stacked(*layers: BlockRun) -> tuple[BlockRun, ...]:
    """Layers between an embedding and a head, whose parameters are held for the whole step."""
    return BlockRun(EMBEDDING, 1, "first", is_unit=False), *layers, BlockRun(HEAD, 1, "last", is_unit=False)


def stack_sizes(spec: Any, fields: str, **own: Any) -> TransformerSizes:
    """Layers as those of a transformer: the named fields of `spec`, and `own` ones."""
    return TransformerSizes(
        **{field: getattr(spec, field) for field in f"name hidden n_heads ffn_hidden {fields}".split()}, **own
    )


def layer_flops(sizes: TransformerSizes, plan: ParallelPlan, *, recomputed: bool) -> float:
    """FLOPs of one sample of `plan.seq_len` tokens through all layers: forward, backward and recomputed."""
    forward = token_flops(sizes, plan.seq_len, plan.is_flash).layers
    again = recomputed_flops_per_token(sizes, plan, plan.is_flash) if recomputed else 0.0
    return plan.seq_len * (3.0 * forward + again)


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
