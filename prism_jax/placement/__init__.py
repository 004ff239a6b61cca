"""Which measured node sits in which slot of a job, so that the tail of the step time is smallest."""

from .fleet import Fleet as Fleet
from .place import Effort as Effort, place as place
from .result import Gain as Gain, PlacementResult as PlacementResult
