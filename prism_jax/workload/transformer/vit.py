"""VitSpec: vision transformers that classify images.

Source: arXiv 2010.11929 (ViT), 2012.12877 (DeiT: the same layers, a second extra token where it is distilled).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...core.bounds import MOST_WIDTH, check_count
from ...core.errors import SpecError
from ...plan.plan import ParallelPlan
from ..base.workload import Block
from .blocks import LayerBlock
from .dense_stack import layer_flops, stack_sizes
from .params import layer_params, norm_params
from .sizes import TransformerSizes
from .vision_blocks import ClassHead, OfPatches, PatchEmbedding

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
