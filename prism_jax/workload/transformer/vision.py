"""Models over patches of an image: vision transformers that classify images, and diffusion transformers that denoise latents.

VitSpec: arXiv 2010.11929 (ViT), 2012.12877 (DeiT: the same layers, a second extra token where it is distilled). DitSpec: layers
that time and label modulate (adaLN-Zero), arXiv 2212.09748, table 1 and figure 3; counts as in facebookresearch/DiT (fixed
positions have no parameters).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ...core.bounds import MOST_WIDTH, check_count
from ...core.errors import Problem, SpecError
from ...framework.base import MemoryOptions
from ...plan.fields import share_of_layers
from ...plan.plan import ParallelPlan
from ..base.kernels import Kernel, KernelTable, stream
from ..base.workload import DENSE, Block, Parameters, SavedTensor, Split
from .blocks import LayerBlock, UnchangingBlock
from .encoder import DenseStack, layer_flops, stack_sizes, with_seq_len
from .loss import cross_entropy_kernels
from .op_lists import activation_kernels, norm_kernels
from .params import layer_params, norm_params
from .shard import Shard, gemm
from .sizes import TransformerSizes


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
        row_bytes = shard.hidden_bytes
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
        ops = norm_kernels("final_norm", shard.elements, shard)
        ops += gemm("classes", rows, classes, model.hidden, shard.in_16_bits)
        return KernelTable.of(ops + cross_entropy_kernels(rows * classes, shard))

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of norm, product and biases."""
        return (Parameters(DENSE, norm_params(self.model) + (self.model.hidden + 1.0) * self.model.vocab),)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Input of the norm, logits in fp32."""
        shard = Shard.of(self.model, self.plan)
        hidden = SavedTensor("final norm input", shard.hidden_bytes)
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
        row_bytes = shard.hidden_bytes
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
        return (SavedTensor("modulated", 4 * shard.hidden_bytes),)


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
        elements = shard.elements
        ops = gemm("modulation", float(self.plan.micro_batch), 2.0 * model.hidden, model.hidden, wide)
        ops += norm_kernels("final_norm", elements, shard)
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
        hidden = 2 * shard.hidden_bytes
        return (
            SavedTensor("final norm and product input", hidden),
            SavedTensor("error", 4.0 * shard.tokens * self.patch_values),
        )


MOST_PIXELS = 16_384  # along one side


@dataclass(frozen=True)
class VitSpec(OfPatches):
    """A vision transformer with a classifier; all sizes are counts."""

    name: str
    n_layers: int
    hidden: int
    n_heads: int
    ffn_hidden: int
    image_size: int = 224
    patch: int = 16  # pixels along one side
    n_channels: int = 3
    n_classes: int = 1000
    n_extra_tokens: int = 1  # class token; 2 with a distillation token, 0 where tokens are averaged
    gated: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        check_patches(f"model {self.name}", "image_size", self.image_size, self.patch)
        counts = {"n_channels": self.n_channels, "n_classes": self.n_classes}
        check_count(SpecError, f"model {self.name}", 1, MOST_WIDTH, **counts)
        check_count(SpecError, f"model {self.name}", 0, MOST_WIDTH, n_extra_tokens=self.n_extra_tokens)
        _ = self.sizes

    @property
    def n_patches(self) -> int:
        """Number of patches of an image."""
        return (self.image_size // self.patch) ** 2

    @property
    def n_tokens(self) -> int:
        """Number of patches and extra tokens."""
        return self.n_patches + self.n_extra_tokens

    @cached_property
    def sizes(self) -> TransformerSizes:
        """Sizes of the layers as those of a transformer without a mask."""
        fixed = {"tied_embeddings": False, "dropout": False, "causal": False}
        return stack_sizes(self, "n_layers gated", vocab=self.n_classes, max_seq_len=self.n_tokens, **fixed)

    @property
    def patch_values(self) -> int:
        """Numbers that one patch has."""
        return self.n_channels * self.patch**2

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        inside = self.inside(plan)
        match kind:
            case "embedding":
                n_own = (self.n_tokens + self.n_extra_tokens) * self.hidden
                return PatchEmbedding(self.sizes, inside, self.n_patches, self.patch_values, float(n_own))
            case "head":
                return ClassHead(self.sizes, inside)
            case _:
                return LayerBlock(self.sizes, inside, 0)

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Layers and classifier three times forward; the embedding has no gradient of its input."""
        embedding = 2.0 * self.n_patches * self.patch_values * self.hidden
        head = 2.0 * self.hidden * self.n_classes
        layers = layer_flops(self.sizes, self.inside(plan), recomputed=recomputed)
        return plan.global_batch * (layers + 2.0 * embedding + 3.0 * head)

    def n_params(self) -> int:
        """Returns the number of all parameters."""
        embedding = (self.patch_values + 1 + self.n_tokens + self.n_extra_tokens) * self.hidden
        head = norm_params(self.sizes) + (self.hidden + 1) * self.n_classes
        return self.n_layers * layer_params(self.sizes, 0).total + embedding + head


def check_patches(owner: str, field: str, size: int, patch: int) -> None:
    """Refuses sides that patches do not divide.

    Raises:
        SpecError: says which.
    """
    check_count(SpecError, owner, 1, MOST_PIXELS, **{field: size, "patch": patch})
    if size % patch:
        raise SpecError(f"{owner}: {field} = {size} is not a multiple of patch = {patch}. Change one of them.")


_TIME_FEATURES = 256  # sines and cosines of the time step


@dataclass(frozen=True)
class DitSpec(OfPatches):
    """A diffusion transformer over latents; all sizes are counts. The autoencoder that makes latents is not part of it."""

    name: str
    n_layers: int
    hidden: int
    n_heads: int
    ffn_hidden: int
    latent_size: int = 32  # along one side: 256 pixels by an autoencoder of factor 8
    patch: int = 2
    n_channels: int = 4
    n_classes: int = 1000
    learns_variance: bool = True  # predicts twice as many channels
    source: str = ""

    def __post_init__(self) -> None:
        owner = f"model {self.name}"
        check_patches(owner, "latent_size", self.latent_size, self.patch)
        check_count(SpecError, owner, 1, MOST_WIDTH, n_channels=self.n_channels)
        check_count(SpecError, owner, 0, MOST_WIDTH, n_classes=self.n_classes)
        _ = self.sizes

    @property
    def n_tokens(self) -> int:
        """Number of patches of a latent."""
        return (self.latent_size // self.patch) ** 2

    @cached_property
    def sizes(self) -> TransformerSizes:
        """Sizes of the layers as those of a transformer without a mask, without modulation."""
        fixed = {"tied_embeddings": False, "dropout": False, "causal": False}
        return stack_sizes(self, "n_layers", vocab=1, position="none", max_seq_len=self.n_tokens, **fixed)

    @property
    def patch_values(self) -> int:
        """Numbers that one patch has."""
        return self.n_channels * self.patch**2

    @property
    def predicted_values(self) -> int:
        """Numbers that are predicted per patch."""
        return self.patch_values * (2 if self.learns_variance else 1)

    def n_condition_params(self) -> int:
        """Embeddings of time (two products) and labels (one more: no label)."""
        time = (_TIME_FEATURES + 1 + self.hidden + 1) * self.hidden
        return time + (self.n_classes + 1) * self.hidden

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        inside = self.inside(plan)
        match kind:
            case "embedding":
                beside = float(self.n_condition_params())
                return PatchEmbedding(self.sizes, inside, self.n_tokens, self.patch_values, 0.0, beside)
            case "head":
                return DenoisingHead(self.sizes, inside, self.predicted_values)
            case _:
                return ModulatedLayer(self.sizes, inside, 0)

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Layers, modulations and head three times forward; the embedding has no gradient of its input."""
        embedding = 2.0 * self.n_tokens * self.patch_values * self.hidden
        head = 2.0 * self.hidden * (2.0 * self.hidden + self.n_tokens * self.predicted_values)
        modulation = 12.0 * self.hidden**2 * self.n_layers
        is_again = recomputed and plan.recompute in ("full", "selective_layer")
        passes = 3.0 + (share_of_layers(plan, self.n_layers) if is_again else 0.0)
        layers = layer_flops(self.sizes, self.inside(plan), recomputed=recomputed)
        return plan.global_batch * (layers + passes * modulation + 2.0 * embedding + 3.0 * head)

    def n_params(self) -> int:
        """All parameters that are trained."""
        layer = layer_params(self.sizes, 0).total - 2 * norm_params(self.sizes) + 6 * self.hidden * (self.hidden + 1)
        head = (self.hidden + 1) * (2 * self.hidden + self.predicted_values)
        return self.n_layers * layer + (self.patch_values + 1) * self.hidden + self.n_condition_params() + head


VIT_WORDS = {
    "image_size": "pixels along one side of an image",
    "patch": "pixels along one side of a patch",
    "n_channels": "of an image",
    "n_classes": "classes of the output layer",
    "n_extra_tokens": "class token, distillation token",
}
DIT_WORDS = {
    "latent_size": "numbers along one side of a latent; 32: images of 256 pixels",
    "patch": "numbers along one side of a patch",
    "n_channels": "of a latent",
    "n_classes": "labels that condition",
    "learns_variance": "variances are predicted, too: twice as many channels",
}
_VIT = "arXiv 2010.11929 table 1"
_DEIT = "arXiv 2012.12877 table 1"
_DIT = "arXiv 2212.09748 table 1"

_b16 = VitSpec("vit-b-16", 12, 768, 12, 3072, source=_VIT)
_l16 = replace(_b16, name="vit-l-16", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096)
VITS = (
    _b16,
    _l16,
    replace(_l16, name="vit-h-14", n_layers=32, hidden=1280, ffn_hidden=5120, patch=14),
    replace(_b16, name="deit-tiny-16", hidden=192, n_heads=3, ffn_hidden=768, source=_DEIT),
    replace(_b16, name="deit-small-16", hidden=384, n_heads=6, ffn_hidden=1536, source=_DEIT),
)
_xl2 = DitSpec("dit-xl-2", 28, 1152, 16, 4608, source=_DIT)
DITS = (
    replace(_xl2, name="dit-s-2", n_layers=12, hidden=384, n_heads=6, ffn_hidden=1536),
    replace(_xl2, name="dit-b-2", n_layers=12, hidden=768, n_heads=12, ffn_hidden=3072),
    replace(_xl2, name="dit-l-2", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096),
    _xl2,
)
