"""Transformer architectures by name, and the parameter counts their authors published; read once from `models.toml`."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..system.names import NameTable, load_toml
from .base import Workload
from .kinds import KINDS, preset_of_kinds
from .transformer.spec import MLASpec, MoESpec, TransformerSpec, WindowSpec

_NOT_A_FIELD = ("aliases", "family", "published")


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
