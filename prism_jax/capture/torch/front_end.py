"""The front end: which sources are its own, and a program from a request."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import DataError
from ...workload.captured.program import RankProgram
from ..front_end import CaptureRequest, FrontEnd

OPTIONS = {
    "ranks": "first (default): one rank of every stage; all: every rank, those that run the same rows as one class",
    "fold": "yes (default): layers that repeat are written once; no: every row",
}
_HEAD = 200_000  # characters of a file that are looked at


def _recognises(request: CaptureRequest) -> bool:
    path = Path(request.path)
    if path.suffix != ".py" or not path.is_file():
        return False
    text = path.read_text(encoding="utf-8", errors="replace")[:_HEAD]
    return "import torch" in text or "from torch" in text


def _capture(request: CaptureRequest) -> RankProgram:
    try:
        import torch  # pyright: ignore[reportMissingImports]  # noqa: F401
    except ImportError as error:
        text = "capturing PyTorch code needs torch, which is not installed: pip install 'prism-jax[capture]'"
        raise DataError(f"{request.source}: {text}") from error
    request.check_options(OPTIONS)
    from .capture_program import capture_program

    return capture_program(request)


FRONT_END = FrontEnd(
    "torch", "a Python file with a function build(layout) that makes a PyTorch model", _recognises, _capture
)
