"""DitSpec: diffusion transformers that denoise the latents of images, with layers that time and label modulate (adaLN-Zero).

Source: arXiv 2212.09748, table 1 and figure 3; counts as in facebookresearch/DiT (fixed positions have no parameters).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...core.bounds import MOST_WIDTH, check_count
from ...core.errors import SpecError
from ...plan.fields import share_of_layers
from ...plan.plan import ParallelPlan
from ..base.workload import Block
from .dense_stack import layer_flops, stack_sizes
from .params import layer_params, norm_params
from .sizes import TransformerSizes
from .vision_blocks import DenoisingHead, ModulatedLayer, OfPatches, PatchEmbedding
from .vit import check_patches

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
