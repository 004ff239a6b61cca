"""`FRONT_END`: starts the process that compiles, and makes a captured program of its output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfile
from typing import Any

from ...core.errors import DataError
from ...core.read_file import parse_json, read_text
from ...core.write_file import atomic_path
from ...workload.captured.program import RankProgram
from ..front_end import CaptureRequest, FrontEnd, overridden
from ..hlo.front_end import KERNELS, check_devices, kernels_of
from ..hlo.parse import MOST_BYTES, parse_hlo
from ..hlo.program import ProgramFacts, rank_program

OPTIONS = {"keep": "file that the HLO text is kept in", "timeout_s": "seconds that compiling may take; 3600 by default"}
OPTIONS["kernels"] = KERNELS
MOST_ABOUT = 1 << 20
MOST_SOURCE = 1 << 22
MOST_VIRTUAL = 1 << 16  # devices of one process
_KERNELS = {
    "": "Compiled by XLA for CPUs, whose fusions are not those of GPUs and TPUs.",
    "xla": "Compiled by XLA for CPUs; operations are one kernel where they would be in XLA for GPUs: up to the next reduction.",
    "chains": "Compiled by XLA for CPUs; its fusions are taken apart, and operations merged as the fusion policy says.",
}
_COUNT = "--xla_force_host_platform_device_count"
_IMPORTS = re.compile(r"^\s*(?:import|from)\s+(?:\w*jax\w*|flax|optax|equinox|haiku|maxtext)\b", re.MULTILINE)


def recognises(request: CaptureRequest) -> bool:
    """Whether the source is a function of a Python file that imports JAX."""
    path = Path(request.path)
    if not request.defined or path.suffix != ".py" or not path.is_file():
        return False
    try:
        return bool(_IMPORTS.search(read_text(path, MOST_SOURCE, "")))
    except DataError:
        return False


def capture(request: CaptureRequest) -> RankProgram:
    """Compiles the step and reads the program of XLA.

    Raises:
        DataError: the file, the step or what it compiles to cannot be used; says where.
    """
    request.check_options(OPTIONS)
    n = _n_devices(request)
    with tempfile.TemporaryDirectory(prefix="prism-jax-capture-") as folder:
        about = _compiled(request, n, Path(folder))
        text_file = Path(folder) / "step.txt"
        text = read_text(text_file, MOST_BYTES, "Repeat equal layers by jax.lax.scan.")
        if keep := request.options.get("keep"):
            with atomic_path(keep) as temporary:
                copyfile(text_file, temporary)
    module = parse_hlo(text, f"{request.source} (HLO)")
    if module.n_devices != n:
        remedy = "Make the mesh of jax.device_count() devices."
        raise DataError(f"{request.source}: the step runs on {module.n_devices:,} of {n:,} devices. {remedy}")
    check_devices(request, module)
    return overridden(rank_program(module, _stated(request, about)), request)


def _n_devices(request: CaptureRequest) -> int:
    if request.world is None and not request.axes:
        raise DataError(f"{request.source}: say how many devices the job has, with --world (or the sizes of its axes)")
    n = request.n_ranks()
    if n > MOST_VIRTUAL:
        raise DataError(f"--world: {n:,}, but at most {MOST_VIRTUAL:,} virtual devices are made")
    return n


def _compiled(request: CaptureRequest, n: int, folder: Path) -> Mapping[str, Any]:
    """Compiles the step in a process of its own and returns the facts that it reports; its HLO text is in `folder`."""
    flags = [one for one in os.environ.get("XLA_FLAGS", "").split() if not one.startswith(_COUNT)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join([*flags, f"{_COUNT}={n}"])}
    environment["PYTHONPATH"] = os.pathsep.join(one for one in sys.path if one)
    command = [sys.executable, "-m", "prism_jax.capture.jax.child", request.path, request.defined, str(folder)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_timeout_s(request))
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{request.source}: compiling took longer than {_timeout_s(request):g} s. Give --option timeout_s=SECONDS."
        ) from None
    told = folder / "about.json"
    if not told.exists():
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1][:300]
        raise DataError(f"{request.source}: the process that compiles ended with {done.returncode}: {last}")
    about = parse_json(read_text(told, MOST_ABOUT, ""), "what the process said")
    if "error" in about:
        raise DataError(str(about["error"]))
    return about


def _timeout_s(request: CaptureRequest) -> float:
    text = request.options.get("timeout_s", "3600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise DataError(f"--option timeout_s={text[:40]}: not a number of seconds")
    return seconds


def _stated(request: CaptureRequest, about: Mapping[str, Any]) -> ProgramFacts:
    """Takes each fact from the request, else from the user's file, else from the arguments of the step."""
    notes = []
    kernels = kernels_of(request, "xla" if request.fusion in (None, "xla") else "chains")
    samples = request.samples_per_step or about["samples_per_step"]
    tokens = about["tokens_per_sample"] if request.tokens_per_sample is None else request.tokens_per_sample
    if not request.samples_per_step and about["guessed"]:
        notes.append(
            f"Samples of a step are those of {about['guessed']}: {samples} of {tokens} tokens (0: no sequences)."
        )
    return ProgramFacts(
        axes=about["axes"] or request.axes,
        samples_per_step=samples,
        tokens_per_sample=tokens,
        n_parameters=about["n_parameters"],
        source="jax",
        versions=about["versions"],
        assumptions=(*notes, _KERNELS[kernels]),
        kernels=kernels,
    )


FRONT_END = FrontEnd("jax", "a jitted JAX training step: step.py:train_step", recognises, capture)
