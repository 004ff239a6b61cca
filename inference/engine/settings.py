"""Settings of methods: how long and how carefully they work."""

from __future__ import annotations

from dataclasses import dataclass

from prism_jax.core.errors import FitError

METHODS = ("nuts", "svi", "map", "least_squares")


@dataclass(frozen=True)
class Settings:
    """Attributes:
    n_chain: chains, side by side on as many cores.
    n_warmup: adaptation steps per chain; whole blocks.
    n_draw: draws kept per chain; whole blocks.
    n_extension: how often a fit draws as many again where the chains have too few draws to be judged good.
    block: iterations between two looks at the clock, and between two writes of the checkpoint.
    target_accept: acceptance that the step size is adapted to.
    max_tree_depth: at most 2^depth leapfrog steps per draw.
    n_svi_step: optimisation steps of the variational fit.
    n_approximate_draw: draws from an approximation (svi, map, least_squares).
    """

    n_chain: int = 4
    n_warmup: int = 500
    n_draw: int = 500
    block: int = 50
    target_accept: float = 0.85
    max_tree_depth: int = 9
    n_svi_step: int = 400
    n_approximate_draw: int = 2000
    n_extension: int = 2

    def __post_init__(self) -> None:
        for name in ("n_chain", "n_warmup", "n_draw", "block", "max_tree_depth", "n_svi_step", "n_approximate_draw"):
            if getattr(self, name) < 1:
                raise FitError(f"{name} = {getattr(self, name)}, but it must be at least 1")
        if self.n_extension < 0:
            raise FitError(f"n_extension = {self.n_extension}, but it must be at least 0")
        for name in ("n_warmup", "n_draw"):
            if getattr(self, name) % self.block:
                raise FitError(
                    f"{name} = {getattr(self, name)} is not a multiple of the block of {self.block} iterations"
                )

    @property
    def n_block(self) -> int:
        """Blocks in all, those of the warm-up too."""
        return (self.n_warmup + self.n_draw) // self.block
