"""When spot nodes are to be had and when they are lost: one law a file, by name."""

from .base import Availability as Availability
from .registry import AVAILABILITY as AVAILABILITY
from .weibull import WeibullSpells as WeibullSpells
