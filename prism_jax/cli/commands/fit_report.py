"""`prism-jax fit report FILE`: what a kept fit says, whether to trust it, and a picture."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..options import Json, Plot
from ..pictures import check_picture
from ..result import leave

FitFile = Annotated[str, typer.Argument(metavar="FILE", help="A fit kept by `prism-jax fit ... -o FILE`.")]
Loo = Annotated[bool, typer.Option("--loo", help="Add the leave-one-out score (PSIS-LOO; needs ArviZ).")]


def report(file: FitFile, plot: Plot = None, loo: Loo = False, json: Json = False) -> None:
    """What a kept fit says, and whether to trust it."""
    check_picture(plot)
    from ..._inference_loader import inference
    from ...start_jax import start_jax

    start_jax()
    fitted = inference().Fit.load(file)
    checked = fitted.check()
    summary = {**fitted.summary(), "checks": None if checked is None else checked.as_dict()}
    if loo:
        summary["loo"] = fitted.loo()

    def lines() -> list[str]:
        from ...report.fit_lines import fit_lines

        return fit_lines(summary)

    def figure() -> Any:
        from ...plot import plot_fit

        return plot_fit(summary, checked)

    leave(summary, lines, json, plot, figure)
