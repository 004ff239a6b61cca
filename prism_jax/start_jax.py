"""JAX as the command line wants it: one device per core, compiled programs kept between runs. Call before JAX is imported."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "PRISM_JAX_CACHE"


def start_jax() -> None:
    """Sets what JAX reads at import, unless the user has set it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={cores}".strip()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def cache_folder() -> Path:
    """Where compiled programs are kept: in the user's own cache folder, since compiled code is run as it is found."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE_VARIABLE, Path(base) / "prism-jax" / "jax"))
