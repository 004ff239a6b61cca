"""Slow phases of a log of step times: found as the steps come in, whose they are, and whether to act."""
