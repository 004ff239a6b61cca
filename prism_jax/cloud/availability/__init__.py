"""When spot nodes are to be had and when they are lost: one law a file, by name."""

from .base import Availability as Availability
from .fitted import FittedSpells as FittedSpells
from .registry import AVAILABILITY as AVAILABILITY
from .several_zones import SeveralZones as SeveralZones
from .weibull import WeibullSpells as WeibullSpells
