"""Event simulation of a job: thousands of worlds at once, one event of each per turn of a loop."""

from .simulate import Lost as Lost, simulate as simulate
from .worlds import Setting as Setting, Shape as Shape, SlowArrays as SlowArrays, Threats as Threats, Worlds as Worlds
