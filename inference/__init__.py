"""Fitting variability to measurements. Reached through `prism_jax.fit`, which checks that this package is the one imported."""

PART_OF_PRISM_JAX = True

from .cost_model.folds import step_folds as step_folds  # noqa: E402
from .cost_model.site_fit import SiteFit as SiteFit, calibrate_runs as calibrate_runs  # noqa: E402
from .data.clean import Measurements as Measurements  # noqa: E402
from .engine.model import random_key as random_key  # noqa: E402
from .engine.settings import Settings as Settings  # noqa: E402
from .fitting.fit import fit as fit, measured as measured  # noqa: E402  (the mark stands first)
from .fitting.holdout import Holdout as Holdout, holdout as holdout  # noqa: E402
from .fitting.result import Fit as Fit  # noqa: E402
