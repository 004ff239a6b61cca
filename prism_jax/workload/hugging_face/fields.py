"""Typed access to the keys of a Hugging Face configuration, with errors that name the key, and a list of what was read.

Windows stand in `sliding_window`, `attention_chunk_size` and `layer_types`. An `Architecture` reads one `model_type`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from ...core.bounds import MOST_LAYERS
from ...core.errors import SpecError
from ..transformer.mixers import CHUNKED, FULL, SLIDING, WindowSpec
from ..transformer.spec import TransformerSpec

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

    def counts(self, **keys: str | tuple[str, int]) -> dict[str, int]:
        """Whole numbers by field: of a key that must be there, or of (key, default)."""
        return {name: self.count(key) if isinstance(key, str) else self.count(*key) for name, key in keys.items()}

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


_REACH_OF_TYPE = {"full_attention": FULL, "sliding_attention": SLIDING, "chunked_attention": CHUNKED}


def window(f: Fields, pattern: Sequence[str], *, size_key: str = "sliding_window", size: int = 0) -> WindowSpec | None:
    """The window of an architecture, None where no layer has one.

    Args:
        pattern: what the layers attend to where `layer_types` does not say it; repeats.
        size_key: where the tokens of a window stand.
        size: of configurations that leave them out; 0: these have no window.
    """
    n_token = f.count(size_key, default=size)
    pattern = _stated(f) or pattern
    has_window = any(reach != FULL for reach in pattern)
    return WindowSpec(n_token, shortest(pattern)) if n_token and has_window else None


def full_every(n: int, other: str = SLIDING) -> tuple[str, ...]:
    """Every `n`-th layer attends to everything; 0: every layer does."""
    return (*[other] * (min(n, MOST_LAYERS + 1) - 1), FULL)


def shortest(pattern: Sequence[str]) -> tuple[str, ...]:
    """The shortest pattern that repeats to `pattern`, whose last repetition may be cut."""
    whole = tuple(pattern)
    period = next(n for n in range(1, len(whole) + 1) if whole[n:] == whole[: len(whole) - n])
    return whole[:period]


def _stated(f: Fields) -> list[str]:
    """What `layer_types` says of every layer; empty where it is absent."""
    types = f.items("layer_types")
    for name in map(str, types):
        if name not in _REACH_OF_TYPE:
            f.fail("layer_types", types, f"{name!r} is not modelled, only {', '.join(_REACH_OF_TYPE)} are")
    if types and len(types) != min(f.count("num_hidden_layers"), MOST_LAYERS):
        f.fail("layer_types", types, f"it names {len(types)} layers, and num_hidden_layers is another number")
    return [_REACH_OF_TYPE[str(name)] for name in types]


Reader = Callable[[Fields], dict[str, Any]]


class Architecture(NamedTuple):
    """One `model_type`.

    Attributes:
        name: the `model_type`.
        read: keys of a configuration -> fields of its `spec`.
        spec: what it describes: a decoder, or another kind of model.
    """

    name: str
    read: Reader
    spec: type = TransformerSpec
