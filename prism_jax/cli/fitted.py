"""Kept fits in a prediction: their posterior mean in place of what the job assumes, and the band that their draws leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..job import Job
    from ..variability.tree import Variability

N_DRAW = 24  # of the posterior, behind the band


@dataclass(frozen=True)
class FittedVariability:
    """`middle`: the tree at the posterior means; `draws`: trees of posterior draws."""

    middle: Variability
    draws: Sequence[Variability]

    def band(self, job: Job, seed: int, n_samples: int) -> dict[str, dict[str, float]]:
        """90 % interval of each quantile of the step time, seconds, over the draws."""
        import jax

        from ..report.summary import QUANTILES
        from ..simulate.epistemic import epistemic_band
        from .spinner import spinner

        key = jax.random.key(seed)
        with spinner("posterior draws") as tell:
            found = epistemic_band(
                job,
                self.draws,
                QUANTILES,
                key=key,
                n_samples=n_samples,
                progress=lambda f: tell(f"posterior draws, {f:.0%}"),
            )
        return {name: {"low": low, "high": high} for name, (low, high) in found.items()}


def fitted_variability(base: Variability, files: Sequence[str], seed: int, force: bool) -> FittedVariability | None:
    """The job's tree with what the fits in `files` say in its place, one after the other; None without files.

    Raises:
        DataError: a file is no fit.
        FitError: a fit's verdict is failed and `force` is not set, or it describes a cost.
    """
    if not files:
        return None
    from .._door import inference
    from .spinner import spinner
    from .start_jax import start_jax

    start_jax()
    with spinner("loading fits"):
        import jax

        from ..variability.overlay import overlay

        module = inference()
        middle, draws = base, [base] * N_DRAW
        for index, file in enumerate(files):
            fit: Any = module.Fit.load(file)
            middle = overlay(middle, fit.to_variability(force=force))
            found = fit.variability_draws(N_DRAW, key=jax.random.fold_in(jax.random.key(seed), index), force=force)
            draws = [overlay(under, over) for under, over in zip(draws, found, strict=True)]
    return FittedVariability(middle, draws)
