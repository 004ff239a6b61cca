"""Watts of a training step: power against clock, power of each phase, and what a power limit costs in seconds."""

from .law import PowerLaw as PowerLaw
from .laws import GpuKind as GpuKind, population_law as population_law, power_law as power_law
from .step import StepPower as StepPower, step_power as step_power
