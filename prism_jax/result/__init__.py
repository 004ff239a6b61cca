"""Results: distributions of step times, what they have in common, and what they guarantee."""

from .allocation_spread import AllocationSpread as AllocationSpread
from .distribution import StepTimeDistribution as StepTimeDistribution
from .guarantee import Guarantee as Guarantee
from .step_times import StepTimes as StepTimes
