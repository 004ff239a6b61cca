"""From a job to the distribution of its step time: the one seam between host and device."""

from .explicit import step_time as step_time
from .predict import predict as predict
