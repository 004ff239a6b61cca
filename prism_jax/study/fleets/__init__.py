"""Fleets: "512xh200" as a cluster, prices of its devices, and what it makes of days or tokens."""
