"""Array library that a formula runs on, and names of array axes, one meaning each, for `Float[Array, "row sample"]`.

Costs are arithmetic on peaks, bandwidths and latencies. On plain floats it runs in NumPy; where a caller differentiates or
compiles a function of such a number, the same arithmetic runs on the traced values. JAX is not imported here: its arrays know
their own library (`__array_namespace__` of the array API standard).

Glossary:
    axis:   dimension of the network: tp, cp, ep, dp, then pp (transfers between stages) and the end of the step.
    batch:  independent randomisation of an estimate; batch_sample: draw of one.
    cell:   any point of a table; `*cell` are the axes that argument and result share.
    chunk:  columns that are drawn under one key on the device; elsewhere model chunk in model order.
    column: independent random draw of one replica; the last axis of the engine.
    dep:    predecessor slot of an operation.
    device: GPU of the job, in the order of the plan's axis order.
    draw:   posterior draw.
    factor: group of kernel classes that are slowed by one factor per GPU.
    factor_row: kind of work, micro-batch, and chunk where chunks differ: what has a factor of its work.
    fleet:  GPUs and nodes that a job gets; steps of one fleet share what persists.
    kind:   F, B, W.
    knot:   bend of a piecewise-linear function.
    lane:   pipeline stage, or rank or stream of a recorded job.
    level:  position in the execution order of a step graph; the scanned axis.
    member: rank of the group that synchronises inside every op of a lane.
    node:   host.
    op:     operation signature.
    pair:   two columns that share one counter of the random numbers; half as many as columns.
    part:   the factors, and after them the constant part that no factor slows.
    plan:   candidate plan of a sweep.
    replica: columns of lanes that meet at the end of the step only.
    row:    one operation instance on one lane.
    sample: Monte Carlo draw of a step; always the last axis.
    score:  value of the step's network score; all share every random number.
    stage:  pipeline stage.
    step:   training step, in the order of time where steps belong to one fleet.
    term:   one kind of work on one micro-batch within an op.
    used:   network axis that has any communication inside the ops.
    word:   row of packed random words of an op: one per member, one more for its communication.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

if TYPE_CHECKING or "jaxtyping" in sys.modules:  # what checks types at run time has loaded it
    from jaxtyping import (
        Bool as Bool,
        Complex64 as Complex64,
        Float as Float,
        Float32 as Float32,
        Int as Int,
        Int32 as Int32,
        Integer as Integer,
        Key as Key,
        UInt32 as UInt32,
    )
else:  # a tenth of a second, in annotations only

    class Axes:
        """Stands in for the types of arrays where nothing checks them."""

        def __class_getitem__(cls, _: Any) -> Any:
            return Any

    Bool = Complex64 = Float = Float32 = Int = Int32 = Integer = Key = UInt32 = Axes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike as ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int32]
    Counts = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Positions = NDArray[np.intp]
else:  # names in annotations only, so that NumPy is loaded by the modules that compute
    ArrayLike = Floats = Ints = Counts = Flags = Positions = Any


Values: TypeAlias = Any
"""Real numbers in an array of NumPy or of JAX, or one number."""

_PLAIN = frozenset({float, int, str, bool, type(None)})
_seen_plain: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by `id`, for as long as the object is there


def namespace(*things: Any) -> Any:
    """`numpy`, or `jax.numpy` if any number in `things` is a JAX array or tracer.

    Args:
        things: numbers, arrays, and tuples, mappings or dataclasses that hold such.
    """
    found = _foreign(things)
    if found is not None:
        return found.__array_namespace__()
    import numpy as np  # on first use: commands without arithmetic load this module, too

    return np


def is_numpy(library: Any) -> bool:
    """Whether `library`, a result of `namespace`, is NumPy."""
    return library.__name__ == "numpy"


def is_traced(value: Any) -> bool:
    """Whether `value` belongs to JAX, so that it cannot be checked, compared or hashed on the host."""
    return not _is_plain(value) and _foreign((value,)) is not None


def _foreign(things: Iterable[Any]) -> Any | None:
    """The first array in `things` that is not of NumPy."""
    for thing in things:
        match _kind(type(thing)):
            case "plain":
                found = None
            case "sequence":
                found = _foreign(thing)
            case "mapping":
                found = _foreign(thing.values())
            case "dataclass":
                found = _foreign(vars(thing).values())
            case "frozen":
                found = _foreign_in(thing)
            case _:
                found = thing if hasattr(thing, "__array_namespace__") else None
        if found is not None:
            return found
    return None


def _foreign_in(frozen: Any) -> Any | None:
    """Checks an object that never changes, and remembers objects that were plain, since most are checked many times."""
    if _seen_plain.get(id(frozen)) is frozen:
        return None
    found = _foreign(vars(frozen).values())
    if found is None:
        _seen_plain[id(frozen)] = frozen
    return found


def _is_plain(thing: Any) -> bool:
    """Whether `thing` is a number, a text or an array of NumPy; asked without loading NumPy."""
    return _kind(type(thing)) == "plain"


@lru_cache(maxsize=1024)
def _kind(of: type) -> str:
    """Kind of the objects of a type, for `_foreign`; determined once per type, since costs ask thousands of times."""
    if of in _PLAIN or of.__module__ == "numpy":
        return "plain"
    if issubclass(of, (tuple, list)):
        return "sequence"
    if issubclass(of, Mapping):
        return "mapping"
    if is_dataclass(of):
        return "frozen" if of.__dataclass_params__.frozen and of.__weakrefoffset__ else "dataclass"  # type: ignore[attr-defined]
    return "array"
