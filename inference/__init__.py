"""Fitting variability to measurements. Reached through `prism_jax.fit`, which checks that this package is the one imported."""

PART_OF_PRISM_JAX = True

from typing import TYPE_CHECKING  # noqa: E402  (the mark stands first)

from prism_jax.core.lazy import lazy_names  # noqa: E402

if TYPE_CHECKING:
    from .cost_model.calibrate import step_folds as step_folds
    from .cost_model.site_fit import SiteFit as SiteFit, calibrate_runs as calibrate_runs
    from .data.clean import Measurements as Measurements
    from .engine.model import random_key as random_key
    from .engine.program import Settings as Settings
    from .fitting.fit import fit as fit, measured as measured
    from .fitting.holdout import Holdout as Holdout, holdout as holdout, splits_of_groups as splits_of_groups
    from .fitting.result import Fit as Fit

_NAMES = {  # module -> names, imported on first use: a fit of collectives needs nothing of the cost model
    "cost_model.calibrate": "step_folds",
    "cost_model.site_fit": "SiteFit calibrate_runs",
    "data.clean": "Measurements",
    "engine.model": "random_key",
    "engine.program": "Settings",
    "fitting.fit": "fit measured",
    "fitting.holdout": "Holdout holdout splits_of_groups",
    "fitting.result": "Fit",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
