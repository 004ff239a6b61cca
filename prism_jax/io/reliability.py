"""A reliability by the name of a preset, or from a YAML or TOML file of the user's own."""

from __future__ import annotations

from pathlib import Path

from .._core.input_file import read_text
from ..errors import ConfigError, DataError, SpecError
from ..horizon.catalog import known_preset, preset
from ..horizon.reliability import Reliability
from ..horizon.reliability_section import described_reliability
from .job.document import Document
from .job.read_toml import read_toml
from .job.read_yaml import read_yaml

MAX_BYTES = 2**20
REMEDY = "A reliability is a page of YAML or TOML (docs/horizon.md), or a preset (`prism-jax show reliability`)."


def load_reliability(source: str | Path) -> Reliability:
    """The preset of that name, or what a file says.

    Raises:
        ConfigError: a file that cannot be read, or everything that is wrong in it, one line per mistake: line, field, remedy.
        SpecError: neither a preset nor a file.
    """
    text = str(source)
    if known_preset(text) is not None:
        return preset(text)
    if not text or (Path(text).suffix == "" and not Path(text).exists()):
        return preset(text)  # says which presets there are
    document = _document(text)
    found: list[SpecError] = []
    described = described_reliability(document.data, found, name=Path(text).stem)
    if described is None:
        mistakes = [document.mistake(error.path, error.text) for error in found]
        raise ConfigError(sorted(mistakes, key=lambda mistake: mistake.place))
    return described


def _document(name: str) -> Document:
    try:
        text = read_text(name, MAX_BYTES, REMEDY)
    except DataError as error:
        raise ConfigError.in_file(name, error.text) from None
    return read_toml(text, name) if Path(name).suffix == ".toml" else read_yaml(text, name)
