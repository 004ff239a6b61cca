"""Hardware: devices, tiers and clusters as plain numbers, and the presets that ship with them."""

from .catalog import (
    cluster as cluster,
    cluster_names as cluster_names,
    default_cluster as default_cluster,
    device as device,
    device_names as device_names,
)
from .hardware import Cluster as Cluster, Device as Device, Tier as Tier
