"""Tolerant look-up of preset names: case, `-`, `_`, spaces, owner, vendor words and form-factor digits do not matter.

Raises with the nearest known names when nothing matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from ..errors import SpecError

_IGNORED = re.compile(r"\([^()]*\)|^[\w-]+/|\b(nvidia|amd|instinct|tesla|meta|hf)\b")
_FORM_FACTOR = re.compile(r"sxm\d")
_SEPARATORS = re.compile(r"[\s_/-]+")


def normalised(name: str) -> str:
    """`name` as it is compared: "NVIDIA A100-SXM4-80GB" is "a100_sxm_80gb", "org/Llama-2-7b-hf" is "llama-2-7b"."""
    text = _IGNORED.sub(" ", name.lower().replace("_", "-"))
    return _SEPARATORS.sub("", _FORM_FACTOR.sub("sxm", text))


class NameTable:
    """Canonical names and their aliases.

    Args:
        kind: what the names name, for error messages: "device", "cluster", "model".
        aliases: canonical name -> further names.
        remedy: what else can be done about an unknown name; `{near}` in it stands for the nearest known one.
    """

    def __init__(self, kind: str, aliases: Mapping[str, Iterable[str]], remedy: str = "") -> None:
        self.kind = kind
        self.remedy = remedy
        self.names = tuple(aliases)
        self._by_key: dict[str, str] = {}
        for name, others in aliases.items():
            for text in (name, *others):
                key = normalised(text)
                if self._by_key.setdefault(key, name) != name:
                    raise ValueError(f"{kind} name {text!r} stands for both {self._by_key[key]} and {name}")

    def find(self, text: str) -> str:
        """Canonical name of `text`.

        Raises:
            SpecError: no such name; the message lists the nearest known ones.
        """
        key = normalised(text) if isinstance(text, str) else ""
        if key in self._by_key:
            return self._by_key[key]
        near = [self._by_key[match] for match in get_close_matches(key, self._by_key, n=6, cutoff=0.6)]
        near = list(dict.fromkeys(near))[:3]
        remedy = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(self.names)}."
        other = self.remedy.replace("{near}", near[0] if near else self.names[0])
        raise SpecError(f"unknown {self.kind} {text!r}. {remedy}{other}")

    def known(self, text: str) -> str | None:
        """Canonical name of `text`; None if there is none."""
        return self._by_key.get(normalised(text))


def load_toml(package: str, name: str) -> dict[str, Any]:
    """A preset file `presets/<name>` that ships inside `package`."""
    import tomllib  # only needed when a preset is asked for

    return tomllib.loads((files(package) / "presets" / name).read_text(encoding="utf-8"))
