"""`Node` and `Tensor`: one node of an execution trace, the same for all versions of the format.

Versions: 1.0.0 and 1.0.1 keep everything flat (`inputs`, `input_shapes`, `parent`); since 1.0.2-chakra inputs and outputs are
objects of `values`, `shapes` and `types`, the parent is called `ctrl_deps`, and the rest is in `attrs`, a list of {name, type,
value} or an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from ...errors import DataError
from ..job.document import short

MOST_SIZE = 2**48  # of a dimension or a number of elements
MOST_NUMBER = 2**64
MOST_SIZES = 64  # dimensions
MOST_NAME = 1000
MOST_VALUES = 200_000  # of the inputs or outputs of a node
UNDEFINED = "nullptr"  # in the type of a tensor that is none
_COLLECTIVE = "record_param_comms"
_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a node.

    Attributes:
        number, storage: of the tensor and of the memory that it is in, as the trace counts them.
        n_elements: of the tensor.
        item_bytes: of an element.
        device: cuda:0, cpu; empty where the trace does not say.
        shape: sizes.
        dtype: as the trace spells it: float, c10::BFloat16.
    """

    number: int
    storage: int
    n_elements: int
    item_bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def n_bytes(self) -> float:
        """Of all elements of its shape."""
        n = 1.0
        for size in self.shape:
            n *= size
        return n * self.item_bytes


Value: TypeAlias = "Tensor | int | float | bool | str | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """A node: an operator of PyTorch, or what the program has annotated.

    Attributes:
        id, parent: numbers; the root is its own parent.
        rf_id: when it began, in the order of all threads; 0 for threads and processes.
        thread: that it ran in, numbered by the trace.
        inputs, outputs: in their order.
        attrs: of collectives: what newer versions say of them in words.
    """

    id: int
    parent: int
    name: str
    rf_id: int
    thread: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    schema: str = ""
    backend: str = ""
    attrs: Mapping[str, Any] = field(default_factory=lambda: _NO_ATTRS)

    @property
    def tensors_in(self) -> Iterator[Tensor]:
        """Tensors among its inputs, those in lists included."""
        return tensors(self.inputs)

    @property
    def tensors_out(self) -> Iterator[Tensor]:
        """Tensors among its outputs."""
        return tensors(self.outputs)


def tensors(values: tuple[Value, ...]) -> Iterator[Tensor]:
    """The tensors among values, those in lists included, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors(value)


def node_of(raw: object, place: str) -> Node:
    """The node that a JSON object describes.

    Args:
        place: of the object, for messages.

    Raises:
        DataError: a field is missing or no trace contains its value; names it.
    """
    if not isinstance(raw, dict):
        raise DataError(f"{place}: {short(raw)} is no node of an execution trace")
    attrs = _attrs(raw, place)
    name = raw.get("name")
    if not isinstance(name, str):
        raise DataError(f"{place} name: {short(name)} is not a text")
    return Node(
        _number(raw, "id", place),
        _parent(raw, place),
        name[:MOST_NAME],
        _number(attrs, "rf_id", place, 0),
        _number(attrs, "tid", place, 0),
        _values(raw, "input", place),
        _values(raw, "output", place),
        str(attrs.get("op_schema") or "")[:MOST_NAME],
        str(attrs.get("kernel_backend") or "")[:MOST_NAME],
        {key: attrs[key] for key in attrs if not isinstance(attrs[key], (list, dict))}
        if name == _COLLECTIVE
        else _NO_ATTRS,
    )


def _attrs(raw: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """What newer versions keep in `attrs` and older ones beside the name."""
    found = raw.get("attrs", raw.get("attr"))
    if found is None or isinstance(found, dict):
        return found or raw
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise DataError(f"{place} attrs: {short(found)} is neither an object nor a list of objects")
    return {str(one.get("name")): one.get("value") for one in found}


def _number(raw: Mapping[str, Any], name: str, place: str, default: int | None = None) -> int:
    value = raw.get(name, default)
    if type(value) is not int or not -1 <= value < MOST_NUMBER:
        raise DataError(f"{place} {name}: {short(value)} is not a whole number of 64 bits")
    return value


def _parent(raw: Mapping[str, Any], place: str) -> int:
    name = next((known for known in ("parent", "ctrl_deps") if known in raw), None)
    if name is None:
        raise DataError(f"{place}: neither `parent` nor `ctrl_deps`: no node of an execution trace")
    value = raw[name]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return _number({name: value}, name, place)


def _values(raw: Mapping[str, Any], side: str, place: str) -> tuple[Value, ...]:
    """Inputs or outputs."""
    field = f"{side}s"
    found = raw.get(field)
    if isinstance(found, dict):
        values, shapes, types = (found.get(name, []) for name in ("values", "shapes", "types"))
    else:
        values, shapes, types = found or [], raw.get(f"{side}_shapes") or [], raw.get(f"{side}_types") or []
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        raise DataError(f"{place} {field}: values, shapes and types must be lists")
    if not len(values) == len(types) == len(shapes):
        raise DataError(f"{place} {field}: {len(values)} values, {len(shapes)} shapes and {len(types)} types")
    if len(values) > MOST_VALUES:
        raise DataError(f"{place} {field}: more than {MOST_VALUES:,}")
    at = f"{place} {field}"
    return tuple(_value(*one, at) for one in zip(values, shapes, types, strict=True))


def _value(value: Any, shape: Any, kind: Any, place: str) -> Value:
    """One value, of its type as the trace writes it."""
    if not isinstance(kind, str):
        raise DataError(f"{place}: a type is {short(kind)}, not a text")
    if kind.startswith("Tensor("):
        return None if UNDEFINED in kind else _tensor(value, shape, kind[7:-1], place)
    if isinstance(value, list):
        inner = kind.partition("[")[2].removesuffix("]")
        kinds = inner.split(",") if inner else []
        if len(kinds) != len(value) or not isinstance(shape, list) or len(shape) != len(value):
            kinds, shape = [""] * len(value), [[]] * len(value)
        if len(value) > MOST_VALUES:
            raise DataError(f"{place}: a list of more than {MOST_VALUES:,}")
        return tuple(_value(*one, place) for one in zip(value, shape, kinds, strict=True))
    if value is None or isinstance(value, (int, float, bool)):
        return value
    return value[: 2**20] if isinstance(value, str) else None


def _tensor(value: Any, shape: Any, dtype: str, place: str) -> Tensor:
    if not isinstance(value, list) or not value or len(value) > 8:
        raise DataError(f"{place}: {short(value)} is not a tensor, which has a number, a storage, an offset and sizes")
    numbers = [*value[:5], *(0 for _ in range(5 - len(value)))]
    for one in numbers:
        if type(one) is not int or not -1 <= one < MOST_NUMBER:
            raise DataError(f"{place}: {short(one)} in a tensor is not a whole number of 64 bits")
    if not isinstance(shape, list) or len(shape) > MOST_SIZES:
        raise DataError(f"{place}: {short(shape)} is not the shape of a tensor")
    for size in shape:
        if type(size) is not int or not 0 <= size <= MOST_SIZE:
            raise DataError(f"{place}: size {short(size)} of a tensor is not a whole number from 0 to {MOST_SIZE:,}")
    device = value[5] if len(value) > 5 and isinstance(value[5], str) else ""
    return Tensor(numbers[0], numbers[1], numbers[3], numbers[4], device[:40], tuple(shape), dtype[:40])
