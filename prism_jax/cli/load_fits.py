"""Kept fits in a prediction: their posterior mean in place of what the job assumes, and the band that their draws leave.

A file of `prism-jax fit` speaks of variability, one of `prism-jax calibrate` of the cost model; `--fit` takes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..calibration.calibration import Calibration
    from ..job import Job
    from ..system.hardware import Device
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
        from .spinner import shown, spinner

        key = jax.random.key(seed)
        with spinner("posterior draws") as tell:
            found = epistemic_band(
                job,
                self.draws,
                QUANTILES,
                key=key,
                n_samples=n_samples,
                progress=shown(tell, "posterior draws"),
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
    from .._inference_loader import inference
    from ..start_jax import start_jax
    from .spinner import spinner

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


def calibrated_job(job: Job, files: Sequence[str]) -> tuple[Job, list[str]]:
    """The job with the calibration among `files`, if there is one, and the other files.

    Raises:
        DataError: two calibrations, a damaged one, or one of another device or other software.
    """
    if not files:
        return job, []
    from ..errors import DataError
    from ..start_jax import start_jax

    start_jax()
    store = _store()
    found = [file for file in files if store.is_calibration(file)]
    if len(found) > 1:
        raise DataError(f"--fit: {found[0]} and {found[1]} both calibrate the cost model. Name one of them.")
    if found:
        job = _on_site(job, store.load(found[0]), found[0])
    return job, [file for file in files if file not in found]


def kept_calibration(file: str) -> Calibration:
    """The calibration in a file.

    Raises:
        DataError: there is none, or it is damaged.
    """
    return _store().load(file)


def refuse_other_device(calibration: Calibration, device: Device, file: str) -> None:
    """Calibrations of a site speak of one generation of devices only.

    Raises:
        DataError: the device is of another.
    """
    from ..errors import DataError

    generation = str((calibration.record or {}).get("generation", ""))
    if generation and generation != device.generation:
        raise DataError(f"--fit {file}: calibrated on {generation}, but {device.name} is of {device.generation}.")


def _store() -> Any:
    from importlib import import_module

    from .._inference_loader import inference

    inference()
    return import_module("inference.cost_model.store")


def _on_site(job: Job, calibration: Calibration, file: str) -> Job:
    """The job with the calibration of its site; its framework is the site's if the job states none."""
    from ..errors import DataError

    refuse_other_device(calibration, job.cluster.device, file)
    framework = str((calibration.record or {}).get("framework", ""))
    own = job.software.name
    if framework and own and framework != own:
        raise DataError(
            f"--fit {file}: calibrated with {framework}, but the job runs {own}. Calibrate with runs of that."
        )
    return replace(job, calibration=calibration, framework=job.framework or framework)
