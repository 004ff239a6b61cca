"""Looks at an installation: packages, devices, the folder of compiled programs, one tiny program, memory. No network."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from .._inference_loader import inference
from .._version import __version__
from ..core.processes import OPTIONS, cache_folder, keep_programs
from ..core.units import format_bytes, format_s
from ..core.use_case import Message, use_case
from .report import DoctorReport, Finding

DISTRIBUTION = "prism-jax"
OF_DEVELOPERS = ("test", "dev", "docs")  # extras that no user misses
LEAST_FREE_BYTES = 2.0**30  # a prediction of a large job takes about that much
GPU_FILES = ("/dev/nvidia0", "/dev/kfd")
NAME = re.compile(r"([\w.-]+)(?:\[([\w-]+)\])?")  # jax[cuda12]


class Requirement(NamedTuple):
    """A distribution that is needed, always or by an extra.

    Attributes:
        name: of the distribution.
        least: version, as numbers.
        extra: which asks for it; empty: always.
    """

    name: str
    least: tuple[int, ...] = ()
    extra: str = ""


def not_ready(report: DoctorReport) -> Message | None:
    """Fails the command where something has failed."""
    text = "error: this installation is not ready; the remedies stand above"
    return None if report.is_ready() else Message(text, failed=True)


@use_case(then=(not_ready,))
def examine_installation() -> DoctorReport:
    """Examine this installation: versions, devices, cache, one tiny program, memory. Exit code 0: ready; 1: not.

    Example:
        >>> examine_installation().is_ready()
        True
    """
    findings = [_looked(look) for look in (packages, fits, cache, devices, program, memory)]
    system = f"{platform.system()} {platform.machine()}"
    return DoctorReport(__version__, platform.python_version(), system, (*findings, *extras()))


def _looked(look: Callable[[], Finding]) -> Finding:
    """Runs a check; an installation may be broken in any way, so that any error is a finding."""
    try:
        return look()
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return Finding(look.__name__, "failed", why, "Reinstall prism-jax")


def requirements() -> Iterator[Requirement]:
    """Requirements of the installed distribution; none where it runs from a checkout that is not installed."""
    try:
        texts = metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return
    for text in texts:
        wanted, _, condition = text.partition(";")
        name, part = NAME.findall(wanted)[0]
        least, extra = re.search(r">= *([\d.]+)", wanted), re.search(r"extra *== *[\"']([\w-]+)", condition)
        if name != DISTRIBUTION:
            plugin = f"{name}-{part}-plugin" if part and extra else name
            yield Requirement(plugin, numbers(least[1] if least else ""), extra[1] if extra else "")


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 0, 12, 0 of "0.12.0rc1"."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[^\d.]", version)[0])))


def installed(name: str) -> str | None:
    """Version of a distribution; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def packages() -> Finding:
    """Whether everything that is always needed is there, and new enough."""
    needed = [item for item in requirements() if not item.extra]
    if not needed:
        return Finding("packages", "ok", "not checked: run from a checkout that is not installed")
    versions = {item.name: installed(item.name) for item in needed}
    bad = [i for i in needed if versions[i.name] is None or numbers(versions[i.name] or "") < i.least]
    if bad:
        wrong = ", ".join(f"{item.name} {versions[item.name] or 'is missing'}" for item in bad)
        return Finding("packages", "failed", wrong, "Run pip install --upgrade prism-jax")
    told = ", ".join(f"{name} {versions[name]}" for name in ("jax", "numpy", "numpyro") if name in versions)
    return Finding("packages", "ok", f"{len(needed)} of {len(needed)}, {told}")


def fits() -> Finding:
    """Whether `inference` is ours."""
    return Finding("inference", "ok", str(Path(str(inference().__file__)).parent))


def cache() -> Finding:
    """Whether compiled programs can be kept."""
    own = os.environ.get(next(iter(OPTIONS)))
    keep_programs()
    folder = Path(own) if own else cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free_bytes = float(shutil.disk_usage(folder).free)
    except OSError as error:
        remedy = "Every start compiles anew. Set PRISM_JAX_CACHE to a folder of your own"
        return Finding("cache folder", "failed", f"{folder}: {error.strerror}", remedy)
    return Finding("cache folder", "ok", f"{folder}, writable, {format_bytes(free_bytes)} free")


def devices() -> Finding:
    """Devices that JAX computes on."""
    import jax

    kinds = [f"{device.platform} ({device.device_kind})" for device in jax.devices()]
    told = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    unused = jax.default_backend() == "cpu" and any(map(os.path.exists, GPU_FILES))
    remedy = "A GPU is here that JAX does not use: pip install 'prism-jax[cuda]' if it is NVIDIA's" if unused else ""
    return Finding("devices", "ok", told, remedy)


def program() -> Finding:
    """Whether a tiny program compiles, runs, and gives the right number."""
    import jax
    import jax.numpy as jnp

    started = time.perf_counter()
    answer = float(jax.jit(lambda x: jnp.sort(x)[-1] + jnp.sum(x))(jnp.arange(8.0)))
    took = format_s(time.perf_counter() - started)
    if answer != 35.0:
        return Finding("program", "failed", f"{answer:g} where 35 is right", "Reinstall jax and jaxlib")
    return Finding("program", "ok", f"compiled and run in {took}")


def memory() -> Finding:
    """Whether there is memory for a prediction."""
    free_bytes = available_bytes()
    if free_bytes is None:
        return Finding("memory", "ok", "not known on this system")
    told = f"{format_bytes(free_bytes)} free"
    if free_bytes < LEAST_FREE_BYTES:
        return Finding("memory", "failed", told, f"Free {format_bytes(LEAST_FREE_BYTES)} or more")
    return Finding("memory", "ok", told)


def available_bytes() -> float | None:
    """Memory that a new process may take without swapping; None where the system does not say."""
    with_linux = Path("/proc/meminfo")
    if with_linux.exists():
        found = re.search(r"^MemAvailable: +(\d+) kB", with_linux.read_text(encoding="utf-8"), re.MULTILINE)
        return float(found[1]) * 1024.0 if found else None
    return None


def extras() -> Iterator[Finding]:
    """Optional parts: those that are there, and how to get the others."""
    by_extra: dict[str, list[Requirement]] = {}
    for item in requirements():
        if item.extra and item.extra not in OF_DEVELOPERS:
            by_extra.setdefault(item.extra, []).append(item)
    for name, needed in sorted(by_extra.items()):
        missing = [item.name for item in needed if installed(item.name) is None]
        remedy = f"pip install 'prism-jax[{name}]' brings it" if missing else ""
        told = f"no {', '.join(missing)}" if missing else ", ".join(f"{i.name} {installed(i.name)}" for i in needed)
        yield Finding(f"extra {name}", "missing" if missing else "ok", told, remedy)
