"""OfPatches: what models over patches of an image have in common; samples are images, and the model knows its tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...errors import Problem
from ...plan.plan import ParallelPlan
from ..base import BlockRun, Split
from ..transformer.blocks import EMBEDDING, HEAD
from ..transformer.layered import DenseLayers, with_seq_len
from ..transformer.shard import Shard
from ..transformer.sizes import TransformerSizes
from ..transformer.spec import sure_software

LAYER = "layer"


class OfPatches(DenseLayers):
    """Answers of `Workload` for a stack of equal layers over the patches of a sample."""

    n_layers: int
    hidden: int
    n_heads: int

    @property
    @abstractmethod
    def n_tokens(self) -> int:
        """Tokens of a sample."""

    @property
    @abstractmethod
    def sizes(self) -> TransformerSizes:
        """Its layers."""

    @property
    def sample_unit(self) -> str:
        """Images."""
        return "samples"

    @property
    def sure_software(self) -> dict[str, str]:
        """Choices of the software that the architecture leaves no room for."""
        return sure_software(self.sizes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Embedding of patches, layers, head."""
        return (
            BlockRun(EMBEDDING, 1, "first", is_unit=False),
            BlockRun(LAYER, self.n_layers),
            BlockRun(HEAD, 1, "last", is_unit=False),
        )

    def inside(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample as its sequence."""
        return with_seq_len(plan, self.n_tokens)

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Hidden states of a micro-batch, of all tensor-parallel ranks together."""
        return plan.element_bytes * Shard.of(self.sizes, self.inside(plan)).tokens * self.hidden

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Images of a step."""
        return plan.global_batch

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads; the patches of one image stay together."""
        return {
            "tp": Split(self.n_heads, "attention heads"),
            "cp": Split(1, "long sequence"),
            "ep": Split(1, "experts"),
        }

    def deeper(self, n: int) -> Any:
        """The same model with `n` layers more."""
        return replace(self, n_layers=self.n_layers + n)  # pyright: ignore[reportArgumentType]  (specs are dataclasses)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """The number of tokens follows from the image."""
        if plan.seq_len:
            text = f"{plan.seq_len}, but a sample has {self.n_tokens} tokens by its image. Leave seq_len out."
            yield Problem("seq_len", text)
