"""Writes the scripts that measure GPUs, which need PyTorch or JAX alone; what `prism-jax measure` does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..core.use_case import OUTPUT, Message, Option, use_case
from ..core.write_file import check_folder, write_files

SCRIPTS = ("measure_torch.py", "measure_jax.py")
HERE = Path(__file__).parent


def written_messages(paths: tuple[Path, ...]) -> tuple[Message, ...]:
    """Messages on what was written, and what to do with it."""
    found = [Message(f"wrote {path}") for path in paths]
    how = f"next, where the GPUs are: python {paths[0]}, or the other one with JAX; both write kernels.csv and collectives.csv"
    fits = "then: prism-jax fit kernels kernels.csv; fit fleet kernels.csv; fit collectives collectives.csv"
    return (*found, Message(how), Message(fits))


@use_case(then=(written_messages,), text=lambda _: ())
def write_measuring_scripts(
    *,
    save_dir: Annotated[str | Path, Option("--save-dir", "DIR", key=None, heading=OUTPUT, check=check_folder)] = ".",
    overwrite: Annotated[bool, Option("--force", key=None, heading=OUTPUT)] = False,
) -> tuple[Path, ...]:
    """Write two scripts that measure your GPUs, one for PyTorch and one for JAX, for the machine where they are.

    They time GEMM, attention, memory and two collectives on every GPU, with its clock next to each time, in the columns that
    `prism-jax fit kernels`, `fit fleet` and `fit collectives` read, and need nothing of this package.

    Args:
        save_dir: folder for them, made where there is none.
        overwrite: replace files that are there.

    Raises:
        DataError: a file is there already or cannot be written.

    Example:
        >>> write_measuring_scripts(save_dir="measure")  # doctest: +SKIP
    """
    scripts = {name: (HERE / name).read_text(encoding="utf-8") for name in SCRIPTS}
    return tuple(map(Path, write_files(save_dir, scripts, overwrite=overwrite)))
