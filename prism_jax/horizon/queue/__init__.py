"""The queue of a cluster: jobs arrive, wait, run on GPUs that differ, and finish; policies say who runs next and where."""

from .jobs import QueuedJobs as QueuedJobs
from .outcome import Outcome as Outcome
from .policies import POLICIES as POLICIES
from .simulator import simulate as simulate
from .world import World as World, draw_world as draw_world
