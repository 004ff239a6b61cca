"""What overlaps on one device, as a simulation of its lanes: compute, and one for each group of ranks."""

from .block_lanes import LanedSeconds as LanedSeconds, Overlapping as Overlapping, laned_seconds as laned_seconds
from .lane_times import Task as Task, lane_times as lane_times
