"""Recorded jobs: what a trace tells about steps that were not recorded, who is slow, and what a change would bring."""
