"""Front end of HLO text: optimised modules that people have saved or that XLA dumped."""

from __future__ import annotations

from math import prod

from ...core.errors import DataError
from ...workload.captured.program import RankProgram
from ..front_end import CaptureRequest, FrontEnd, overridden
from .parse import is_hlo, read_hlo
from .program import ProgramFacts, rank_program
from .types import Module

KERNELS = "text: as written; of programs for CPUs: xla, as XLA for GPUs has them, or chains, as --fusion says"
_OPTIONS = {"module": "part of the name of the module in a folder of dumps", "kernels": KERNELS}
_KERNELS = {"text": "", "xla": "xla", "chains": "chains"}


def _capture(request: CaptureRequest) -> RankProgram:
    request.check_options(_OPTIONS)
    kernels = kernels_of(request, "text")
    module = read_hlo(request.source, request.options.get("module", ""))
    check_devices(request, module)
    assumed = (
        ()
        if request.samples_per_step
        else ("The text does not say how many samples a step has: one per data-parallel rank was taken.",)
    )
    stated = ProgramFacts(
        axes=request.axes,
        samples_per_step=request.samples_per_step or 0,
        tokens_per_sample=request.tokens_per_sample or 0,
        source="hlo",
        assumptions=assumed,
        kernels=kernels,
    )
    return overridden(rank_program(module, stated), request)


def kernels_of(request: CaptureRequest, usual: str) -> str:
    """Returns the kernels that a program is read as having, as `ProgramFacts` calls them; `usual` where no option says.

    Raises:
        DataError: an unknown word.
    """
    asked = request.options.get("kernels", usual)
    if asked not in _KERNELS:
        raise DataError(f"--option kernels={asked[:40]}: not one of {', '.join(_KERNELS)}")
    return _KERNELS[asked]


def check_devices(request: CaptureRequest, module: Module) -> None:
    """Raises `DataError` where a module was partitioned for other devices than the request says."""
    n = module.n_devices
    if request.world not in (None, n):
        text = f"{request.source}: the program runs on {n:,} devices, but --world says {request.world:,}"
        raise DataError(f"{text}. Leave --world out, or compile the step for as many.")
    if request.axes and prod(request.axes.values()) != n:
        sizes = " * ".join(f"{axis}={size}" for axis, size in request.axes.items())
        raise DataError(f"{request.source}: the program runs on {n:,} devices, but the axes are {sizes}")


FRONT_END = FrontEnd(
    "hlo",
    "text of an optimised HLO module, or a folder of --xla_dump_to",
    lambda request: is_hlo(request.source),
    _capture,
)
