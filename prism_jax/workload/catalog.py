"""Transformer architectures by name, and the parameter counts their authors published; read once from `models.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import SpecError
from ..system.names import NameTable, load_toml
from .base import Workload
from .kinds import KINDS, preset_of_kinds
from .transformer.spec import MLASpec, MoESpec, TransformerSpec, WindowSpec

_SUFFIX = {"M": 10**6, "B": 10**9, "T": 10**12}
_NOT_A_FIELD = ("aliases", "family", "published")


@dataclass(frozen=True)
class PublishedCount:
    """A parameter count as its source prints it.

    Attributes:
        text: as printed: digits alone are exact, a suffix means rounded ("145.6B").
        n_params: its value.
        half_ulp: half a unit of the last printed digit, 0 if exact: how far a correct count may be away.
        source: paper and table, or model card.
    """

    text: str
    n_params: float
    half_ulp: float
    source: str

    @property
    def exact(self) -> bool:
        """Whether the source prints every digit."""
        return self.half_ulp == 0.0

    def agrees_with(self, n_params: int) -> bool:
        """`n_params` prints as this text."""
        return abs(n_params - self.n_params) <= self.half_ulp


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """Model name -> its fields, those of its family included."""
    document = load_toml(__name__.rpartition(".")[0], "models.toml")
    return {name: document["families"][entry["family"]] | entry for name, entry in document["models"].items()}


@cache
def _table() -> NameTable:
    return NameTable("model", {name: entry.get("aliases", []) for name, entry in _entries().items()})


def model_names() -> tuple[str, ...]:
    """Canonical names of all preset transformers."""
    return _table().names


def workload_names() -> tuple[str, ...]:
    """Names of the presets of all kinds of model, transformers first."""
    return (*model_names(), *(preset.name for kind in KINDS for preset in kind.presets))


def workload(name: str) -> Workload:
    """The preset of that name, of any kind of model.

    Raises:
        SpecError: no such model; the message names the nearest ones.
    """
    own = preset_of_kinds(name)
    if own is not None:
        return own
    if _table().known(str(name)) is None:
        of_any_kind = {one: _entries().get(one, {}).get("aliases", []) for one in workload_names()}
        NameTable("model", of_any_kind).find(name)  # raises, with the nearest names of all kinds
    return model(name)


@cache
def model(name: str) -> TransformerSpec:
    """The preset transformer of that name.

    Raises:
        SpecError: no such model; the message names the nearest ones.
    """
    found = _table().find(name)
    fields = {key: value for key, value in _entries()[found].items() if key not in _NOT_A_FIELD}
    if "moe" in fields:
        fields["moe"] = MoESpec(**fields["moe"])
    if "mla" in fields:
        fields["mla"] = MLASpec(**fields["mla"])
    if "window" in fields:
        fields["window"] = WindowSpec(fields["window"]["size"], tuple(fields["window"]["pattern"]))
    if "left_out" in fields:
        fields["left_out"] = tuple(fields["left_out"])
    return TransformerSpec(name=found, **fields)


def published_params(name: str) -> PublishedCount:
    """The published parameter count of a preset model.

    Raises:
        SpecError: no such model.
    """
    entry = _entries()[_table().find(name)]
    return parse_count(entry["published"], entry["source"])


def parse_count(text: str, source: str = "") -> PublishedCount:
    """A printed parameter count: "6738415616" is exact, "145.6B" is rounded to 0.1 billion.

    Raises:
        SpecError: not a number with an optional suffix M, B or T.
    """
    digits, scale = (text[:-1], _SUFFIX[text[-1]]) if text[-1:] in _SUFFIX else (text, 1)
    try:
        value = float(digits) if scale > 1 else int(digits)
    except ValueError:
        raise SpecError(f"{text!r} is not a parameter count. Write it like 6738415616 or 145.6B.") from None
    n_decimals = len(digits.partition(".")[2])
    return PublishedCount(text, value * scale, 0.5 * scale / 10**n_decimals if scale > 1 else 0.0, source)
