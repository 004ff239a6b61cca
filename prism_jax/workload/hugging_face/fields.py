"""Typed access to the keys of a Hugging Face configuration, with errors that name the key, and a list of what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...errors import SpecError

_REQUIRED = object()
_MAX_COUNT = 10**9  # the largest sizes in use, vocabularies, are below 10^6


@dataclass(frozen=True)
class Fields:
    """Keys of one configuration object.

    Attributes:
        kind: its model type, for error messages.
        config: the object; null counts as absent.
        prefix: path of the object inside the file, such as "attn_config.".
        read: keys that were asked for.
    """

    kind: str
    config: Mapping[str, Any]
    prefix: str = ""
    read: set[str] = field(default_factory=set, compare=False)

    def fail(self, key: str, value: object, constraint: str) -> NoReturn:
        """Refuses `value` of `key`.

        Raises:
            SpecError: always; says what holds instead.
        """
        raise SpecError(f"{self.kind} config: {self.prefix}{key} = {_short(value)}, but {constraint}")

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of `key`, or `default` when it is absent or null."""
        self.read.add(key)
        value = self.config.get(key)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise SpecError(f"{self.kind} config: key {self.prefix}{key} is missing. Add it to the config.json.")
        return default

    def count(self, key: str, default: Any = _REQUIRED) -> int:
        """A whole number, at least 0 (what must be positive is checked by TransformerSpec)."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
            self.fail(key, value, f"it must be a whole number from 0 to {_MAX_COUNT}")
        return value

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        """A positive number."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_COUNT:
            self.fail(key, value, f"it must be a number greater than 0 and at most {_MAX_COUNT}")
        return value

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, value, "it must be true or false")
        return value

    def items(self, key: str) -> list[Any]:
        """A list; absent or null is an empty one."""
        value = self.get(key, default=[])
        if not isinstance(value, list):
            self.fail(key, value, "it must be a list")
        return value

    def require(self, key: str, only: object, default: Any = _REQUIRED) -> None:
        """Only one value of `key` is modelled."""
        value = self.get(key, default)
        if value != only:
            self.fail(key, value, f"only {only!r} is modelled")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
