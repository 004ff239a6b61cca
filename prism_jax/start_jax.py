"""JAX as it is wanted here: compiled programs are kept between runs, and the command line uses one device per core."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

CACHE_VARIABLE = "PRISM_JAX_CACHE"
OPTIONS = {  # JAX reads these variables when it is imported, and these options ever after
    "JAX_COMPILATION_CACHE_DIR": "jax_compilation_cache_dir",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "jax_persistent_cache_min_compile_time_secs",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "jax_persistent_cache_min_entry_size_bytes",
}


_CACHE_FAULT = "Error (reading|writing) persistent compilation cache entry"


def start_jax() -> None:
    """Sets the number of devices and keeps compiled programs, unless the user has set these.

    May be called with JAX imported; the number of devices is fixed by the first computation.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={cores}".strip()
    keep_programs()


def keep_programs() -> None:
    """Keeps compiled programs in `cache_folder`, unless the user has said where; called before anything is compiled."""
    warnings.filterwarnings(
        "ignore", _CACHE_FAULT, UserWarning
    )  # one per program; the answer is the same without the cache
    defaults = (str(cache_folder()), 0.1, -1)
    jax = sys.modules.get("jax")
    for (variable, option), value in zip(OPTIONS.items(), defaults, strict=True):
        if variable not in os.environ:
            os.environ[variable] = str(value)
            if jax is not None:
                jax.config.update(option, value)


def cache_folder() -> Path:
    """Where compiled programs are kept: in the user's own cache folder, since compiled code is run as it is found."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE_VARIABLE, Path(base) / "prism-jax" / "jax"))
