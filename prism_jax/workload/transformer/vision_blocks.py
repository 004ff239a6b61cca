"""Models over patches of an image: the product that embeds them, the classifier, layers that a condition modulates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.errors import Problem
from ...framework.base import MemoryOptions
from ...plan.plan import ParallelPlan
from ..base.kernels import Kernel, KernelTable
from ..base.workload import DENSE, Parameters, SavedTensor, Split
from .blocks import LayerBlock, UnchangingBlock
from .dense_stack import DenseStack, with_seq_len
from .loss import cross_entropy_kernels
from .op_lists import activation_kernels, norm_kernels
from .params import norm_params
from .shard import Shard, gemm, stream


class OfPatches(DenseStack):
    """A stack of layers over the patches of a sample, which is an image: the model knows its tokens."""

    @property
    @abstractmethod
    def n_tokens(self) -> int:
        """Number of tokens of a sample."""

    def inside(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample as its sequence."""
        return with_seq_len(plan, self.n_tokens)

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads; the patches of one image stay together."""
        return super().splits(plan) | {"cp": Split(1, "long sequence")}

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """The number of tokens follows from the image."""
        if plan.seq_len:
            text = f"{plan.seq_len}, but a sample has {self.n_tokens} tokens by its image. Leave seq_len out."
            yield Problem("seq_len", text)


_MODULATIONS = 6  # shift, scale and gate of attention and MLP (adaLN-Zero)


@dataclass(frozen=True)
class PatchEmbedding(UnchangingBlock):
    """A product that turns patches into tokens; positions and extra tokens are added. Whole on every tensor-parallel rank.

    Attributes:
        n_patches, patch_values: of a sample, and numbers of a patch.
        n_own: parameters other than the product's: positions, extra tokens.
        n_beside: parameters of products that read a condition once per sample.
    """

    n_patches: int
    patch_values: int
    n_own: float
    n_beside: float = 0.0

    @property
    def kernels(self) -> KernelTable:
        """The product and its weight gradient; images have no gradient. Positions are added."""
        shard = Shard.of(self.model, self.plan)
        rows = float(self.plan.micro_batch * self.n_patches)
        ops = [
            op
            for op in gemm("patches", rows, self.model.hidden, self.patch_values, shard.in_16_bits)
            if op.phase != "B"
        ]
        row_bytes = shard.element_bytes * shard.local_tokens * self.model.hidden
        return KernelTable.of([*ops, stream("positions", "F", 2 * row_bytes), stream("positions", "W", row_bytes)])

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of product, biases, positions, extra tokens, and of products that read the condition."""
        product = (self.patch_values + 1.0) * self.model.hidden
        return (Parameters(DENSE, product + self.n_own + self.n_beside),)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the patches, which the block saves."""
        n_value = self.plan.micro_batch * self.n_patches * self.patch_values
        return (SavedTensor("patches", Shard.of(self.model, self.plan).element_bytes * n_value),)


@dataclass(frozen=True)
class ClassHead(UnchangingBlock):
    """Norm of all tokens, product of one token or the mean with the classes, loss; `model.vocab` counts classes."""

    @property
    def kernels(self) -> KernelTable:
        """Kernels of norm, product and cross entropy."""
        model, shard = self.model, Shard.of(self.model, self.plan)
        rows, classes = float(self.plan.micro_batch), float(model.vocab)
        ops = norm_kernels("final_norm", shard.local_tokens * model.hidden, shard, rms=model.norm == "rms")
        ops += gemm("classes", rows, classes, model.hidden, shard.in_16_bits)
        return KernelTable.of(ops + cross_entropy_kernels(rows * classes, shard))

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of norm, product and biases."""
        return (Parameters(DENSE, norm_params(self.model) + (self.model.hidden + 1.0) * self.model.vocab),)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Input of the norm, logits in fp32."""
        shard = Shard.of(self.model, self.plan)
        hidden = SavedTensor("final norm input", shard.element_bytes * shard.local_tokens * self.model.hidden)
        return (hidden, SavedTensor("fp32 logits", 4.0 * self.plan.micro_batch * self.model.vocab))


@dataclass(frozen=True)
class ModulatedLayer(LayerBlock):
    """A layer whose norms have no weights of their own: shift, scale and gate are made of a condition, once per sample."""

    def other_ops(self) -> list[Kernel]:
        """The product that makes them, and the passes that apply them."""
        model, shard = self.model, Shard.of(self.model, self.plan)
        n_rows = float(self.plan.micro_batch)
        ops = activation_kernels("condition_act", n_rows * model.hidden, shard, gated=False)
        ops += gemm("modulation", n_rows, _MODULATIONS * model.hidden / shard.tp, model.hidden, shard)
        row_bytes = shard.element_bytes * shard.local_tokens * model.hidden
        applied = 2 * 2 + 2 * 2  # shift and scale after each norm, gate before each residual: a read and a write
        return [
            *ops,
            stream("modulate", "F", applied * row_bytes, 4.0),
            stream("modulate", "B", 1.5 * applied * row_bytes, 8.0),
        ]

    def other_params(self) -> float:
        """The product that makes them, less the weights that the norms lack."""
        hidden = self.model.hidden
        return _MODULATIONS * hidden * (hidden + 1.0) / self.plan.tp - 2.0 * norm_params(self.model)

    def other_saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Inputs of gates and of shifts and scales."""
        shard = Shard.of(self.model, self.plan)
        return (SavedTensor("modulated", 4 * shard.element_bytes * shard.local_tokens * self.model.hidden),)


@dataclass(frozen=True)
class DenoisingHead(UnchangingBlock):
    """Modulated norm, product back to patches, squared error.

    Attributes:
        patch_values: numbers that are predicted per token.
    """

    patch_values: int

    @property
    def kernels(self) -> KernelTable:
        """Condition, norm, modulation, product, loss."""
        model, shard = self.model, Shard.of(self.model, self.plan)
        wide = shard.in_16_bits
        elements = shard.local_tokens * model.hidden
        ops = gemm("modulation", float(self.plan.micro_batch), 2.0 * model.hidden, model.hidden, wide)
        ops += norm_kernels("final_norm", elements, shard, rms=False)
        ops += [stream("modulate", phase, n * shard.element_bytes * elements) for phase, n in (("F", 2), ("B", 3))]
        ops += gemm("pixels", shard.tokens, float(self.patch_values), model.hidden, wide)
        error = 4.0 * shard.tokens * self.patch_values
        return KernelTable.of([*ops, stream("error", "F", 2 * error, 3.0), stream("error", "B", 2 * error, 2.0)])

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of products with their biases."""
        hidden = self.model.hidden
        return (Parameters(DENSE, (hidden + 1.0) * (2.0 * hidden + self.patch_values)),)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Inputs of norm and product, the error."""
        shard = Shard.of(self.model, self.plan)
        hidden = 2 * shard.element_bytes * shard.local_tokens * self.model.hidden
        return (
            SavedTensor("final norm and product input", hidden),
            SavedTensor("error", 4.0 * shard.tokens * self.patch_values),
        )
