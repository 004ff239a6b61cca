"""What a JAX profile holds: how often every HLO instruction ran on every device, and the shapes of the module that ran.

`jax.profiler.ProfileData` gives the events. The module stands in the metadata of the file as a protocol buffer, read here field
by field (tensorflow/tsl xplane.proto, xla hlo.proto and xla_data.proto).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jax.profiler import ProfileData

Fields = dict[int, list[bytes | int]]
_PLANES, _EVENT_METADATA, _VALUE, _STATS, _BYTES = 1, 4, 2, 5, 6
_MODULE, _COMPUTATIONS, _INSTRUCTIONS = 1, 3, 2
_NAME, _OPCODE, _SHAPE, _DIMENSIONS, _ELEMENTS = 1, 2, 3, 3, 4
METADATA = b"/host:metadata"


def runs(file: Path, module: str) -> dict[int, Counter[str]]:
    """Device -> HLO instruction -> how often it ran."""
    found: dict[int, Counter[str]] = {}
    for plane in ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if str(stats.get("hlo_module", "")) == module:
                    device = int(str(stats.get("device_ordinal", 0)))
                    found.setdefault(device, Counter())[str(stats["hlo_op"])] += 1
    return found


def shapes(file: Path, module: str) -> dict[str, tuple[str, tuple[tuple[int, ...], ...]]]:
    """HLO instruction -> operation and dimensions of its result (of a tuple: of its elements), as the profile has them."""
    found = {}
    for plane in _messages(_read(file.read_bytes()), _PLANES):
        if plane.get(2, [b""])[0] != METADATA:
            continue
        for entry in _messages(plane, _EVENT_METADATA):
            for stat in (stat for about in _messages(entry, _VALUE) for stat in _messages(about, _STATS)):
                for raw in stat.get(_BYTES, []):
                    found |= _instructions(bytes(raw), module) if isinstance(raw, bytes) else {}
    return found


def _instructions(proto: bytes, module: str) -> dict[str, tuple[str, tuple[tuple[int, ...], ...]]]:
    found = {}
    for own in _messages(_read(proto), _MODULE):
        if _text(own, _NAME) != module:
            continue
        for computation in _messages(own, _COMPUTATIONS):
            for one in _messages(computation, _INSTRUCTIONS):
                shape = next(_messages(one, _SHAPE))
                parts = list(_messages(shape, _ELEMENTS)) or [shape]
                found[_text(one, _NAME)] = _text(one, _OPCODE), tuple(_dimensions(part) for part in parts)
    return found


def _text(fields: Fields, number: int) -> str:
    value = fields.get(number, [b""])[0]
    return value.decode() if isinstance(value, bytes) else ""


def _dimensions(shape: Fields) -> tuple[int, ...]:
    found: list[int] = []
    for value in shape.get(_DIMENSIONS, []):
        found += [value] if isinstance(value, int) else _numbers(value)
    return tuple(found)


def _numbers(packed: bytes) -> list[int]:
    found, position = [], 0
    while position < len(packed):
        value, position = _varint(packed, position)
        found.append(value)
    return found


def _messages(fields: Fields, number: int) -> Iterator[Fields]:
    return (_read(value) for value in fields.get(number, []) if isinstance(value, bytes))


def _read(raw: bytes) -> Fields:
    """Fields of one message by number."""
    found: Fields = {}
    position = 0
    while position < len(raw):
        key, position = _varint(raw, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(raw, position)
        else:
            size, position = (8, position) if kind == 1 else (4, position) if kind == 5 else _varint(raw, position)
            value, position = raw[position : position + size], position + size
        found.setdefault(number, []).append(value)
    return found


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
