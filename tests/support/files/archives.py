"""Archives with something changed: what a stored fit, calibration or search may come as."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from prism_jax.core.archive import ABOUT, ENDING


def parts(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What an archive says, and its arrays."""
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files if name != ABOUT}
        return json.loads(archive[ABOUT]), arrays


def written(file: Path, about: Any, arrays: dict[str, Any], method: int = zipfile.ZIP_STORED) -> None:
    """Writes an archive as anybody could; bytes in place of an array stand as they are."""
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(ABOUT, about if isinstance(about, (str, bytes)) else json.dumps(about))
        for name, value in arrays.items():
            archive.writestr(name + ENDING, value if isinstance(value, bytes) else npy(value))


def npy(value: Any, *, allow_pickle: bool = True) -> bytes:
    """An array as a file."""
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=allow_pickle)
    return stream.getvalue()


def changed(file: Path, edit: Callable[[Any, dict[str, Any]], None], method: int = zipfile.ZIP_STORED) -> None:
    """Rewrites an archive after `edit(about, arrays)`."""
    about, arrays = parts(file)
    edit(about, arrays)
    written(file, about, arrays, method)
