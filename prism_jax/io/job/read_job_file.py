"""A job file on disk, or the name of a shipped job, to a Document; refuses what cannot be a job before parsing it."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from ..._core.input_file import read_text
from ...errors import ConfigError, DataError, Mistake
from ..capture.captured_files import captured_file
from .captured.section import capture_document
from .document import Document
from .examples import example_files
from .read_toml import read_toml
from .read_yaml import read_yaml

MAX_BYTES = 2**20  # a job is a page of text


def read_job_file(path: str | Path) -> Document:
    """Document of the YAML or (by its ending) TOML file `path`, of a capture, or of the shipped job of that name.

    Raises:
        ConfigError: no such file, not a file, unreadable, too large, not UTF-8 text, or not YAML or TOML.
    """
    file = find_job_file(path)
    name = str(path)
    if captured_file(file) is not None:
        return capture_document(file, name)
    text = _text(file, name)
    return read_toml(text, name) if file.suffix == ".toml" else read_yaml(text, name)


def find_job_file(path: str | Path) -> Path:
    """`path` itself if something is there, else the shipped job of that bare name.

    Raises:
        ConfigError: neither exists; names the nearest.
    """
    if not str(path):
        raise ConfigError(
            [Mistake("the name of the job file is empty. `prism-jax show examples` lists the shipped jobs.")]
        )
    file = Path(path)
    try:
        exists = file.exists()
    except (OSError, ValueError) as error:
        raise ConfigError.in_file(path, f"not a usable file name: {error}") from None
    if exists:
        return file
    shipped = example_files()
    if str(path) in shipped:
        return shipped[str(path)]
    raise ConfigError.in_file(path, f"no such file.{_nearest(file, list(shipped))}")


def _nearest(file: Path, shipped: list[str]) -> str:
    beside = (
        [f.name for f in file.parent.iterdir() if f.suffix in (".yaml", ".yml", ".toml")]
        if file.parent.is_dir()
        else []
    )
    near = get_close_matches(file.stem, [Path(name).stem for name in beside], n=1, cutoff=0.65)
    if near:
        found = next(name for name in beside if Path(name).stem == near[0])
        return f" Did you mean {file.parent / found}?"
    near = get_close_matches(file.stem, shipped, n=1, cutoff=0.8)
    if near:
        return f" A shipped job is called {near[0]}."
    return " `prism-jax show examples` lists the shipped jobs."


def _text(file: Path, name: str) -> str:
    try:
        return read_text(file, MAX_BYTES, "A job is a page of YAML or TOML: name such a file.")
    except DataError as error:
        raise ConfigError.in_file(name, error.text) from None
