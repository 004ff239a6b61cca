"""Fitting variability to measurements. Reached through `prism_jax.fit`, which checks that this package is the one imported."""

PART_OF_PRISM_JAX = True

from .fit import fit as fit, measured as measured
from .holdout import Holdout as Holdout, holdout as holdout
from .result import Fit as Fit
from .settings import Settings as Settings
