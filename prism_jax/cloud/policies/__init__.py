"""Policies: where a job runs at a moment, by what is known then; one policy a file, by name."""

from .base import ON_DEMAND as ON_DEMAND, SPOT as SPOT, WAIT as WAIT, Policy as Policy, Use as Use, View as View
from .registry import POLICIES as POLICIES
