"""Shipped models, devices, clusters and variability by name, for jobs that are built in Python.

>>> from prism_jax import presets
>>> presets.model("llama-3-8b").n_layers
32
"""

from __future__ import annotations

from ..system import catalog as _system
from ..system.hardware import Cluster, Device
from ..variability import config as _variability
from ..variability.tree import Variability
from ..workload import catalog as _workload
from ..workload.base.workload import Workload


def model(name: str) -> Workload:
    """The shipped or registered model of that name, of any kind (`prism-jax show models`).

    Raises:
        SpecError: no such model; the message names the nearest ones.
    """
    return _workload.workload(name)


def device(name: str) -> Device:
    """The shipped accelerator of that name (`prism-jax show devices`).

    Raises:
        SpecError: no such device; the message names the nearest ones.
    """
    return _system.device(name)


def cluster(name: str, n_devices: int) -> Cluster:
    """A shipped reference cluster of `n_devices` accelerators (`prism-jax show clusters`).

    Raises:
        SpecError: no such cluster, or it cannot have that many devices.
    """
    return _system.cluster(name, n_devices)


def variability(name: str) -> Variability:
    """The shipped variability of that name (`prism-jax show variability`).

    Raises:
        SpecError: no such preset; the message names the nearest ones.
    """
    return _variability.preset(name)
