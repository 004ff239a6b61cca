"""`read_kernel_times`: measured operators of a profile of one GPU, recorded with their shapes, for captured programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import DataError, SpecError
from ...workload.captured.kernel_times import PRODUCTS, KernelTimes, TimedOp
from .node import CONVOLUTIONS_BACK, HOST, Node, TraceTensor, Value, kind_of, own_name
from .ops import item_bytes, work_of
from .profiled_ops import NONE, Profile, ProfiledOp, read_profile_ops
from .trace import documents

REMEDY = "Record one GPU with torch.profiler.profile(activities=[CPU, CUDA], record_shapes=True)."
_MOST_SIZE = 2**48
_NO_TYPES = ("Scalar", "ScalarList", "TensorList", "")  # whose sizes say nothing where they are empty


def read_kernel_times(path: str | Path) -> KernelTimes:
    """The operators of the profile at `path` (of an archive or a folder: of all in it), with the seconds of their kernels.

    Raises:
        DataError: cannot be read, no profile, no shapes or no kernels in it; says how to record one.
    """
    ops: list[TimedOp] = []
    device, n_profile, n_kernel = "", 0, 0
    for document in documents(Path(path)):
        if not document.is_profile:
            continue
        profile = read_profile_ops(document.name, document.pieces)
        n_profile += 1
        n_kernel += len(profile.kernels)
        device = device or profile.device
        ops += timed_ops(profile)
    if not n_profile:
        raise DataError(f"{path}: no profile of PyTorch (Kineto). {REMEDY}")
    if not ops:
        what = "shapes of operators" if n_kernel else "kernels"
        raise DataError(f"{path}: a profile without {what}. {REMEDY}")
    return KernelTimes(str(path), device, tuple(ops))


def timed_ops(profile: Profile) -> list[TimedOp]:
    """Operators with shapes that start kernels, themselves or by what they call; communication does not count."""
    seconds = [0.0] * len(profile.ops)
    starting: set[int] = set()
    for kernel in profile.kernels:
        at = NONE if kernel.is_communication else kernel.op
        starting.add(at)
        while at != NONE:
            seconds[at] += kernel.seconds
            at = profile.parents[at]
    found: list[TimedOp] = []
    for at, op in enumerate(profile.ops):
        above = profile.parents[at]
        if seconds[at] > 0.0 and op.dims and (above == NONE or profile.ops[above].name != op.name):
            try:
                found += _timed(op, seconds[at], at in starting)
            except SpecError as error:
                raise DataError(f"{profile.name}: {op.name[:60]}: {error}") from None
    return found


def _timed(op: ProfiledOp, seconds: float, is_starting: bool) -> list[TimedOp]:
    kind = kind_of(op.name)
    if kind == "none" or (kind == HOST and not is_starting):
        return []
    node = _node(op)
    given = list(node.tensors_in)
    shapes = tuple(one.shape for one in given)
    read = sum(one.n_bytes for one in given)
    works = [(one, one.shape if one.kind in (*PRODUCTS, "attention") else ()) for one in work_of(node)]
    return [TimedOp(op.name, one.kind, one.dtype, own, shapes, read, seconds / len(works)) for one, own in works]


def _node(op: ProfiledOp) -> Node:
    """The operator as a node of an execution trace."""
    values: list[Value] = []
    types = (*op.types, *("" for _ in op.dims[len(op.types) :]))
    for dims, kind in zip(op.dims, types, strict=False):
        values += _tensors(dims, kind)
    given = [one for one in values if isinstance(one, TraceTensor)]
    own = own_name(op.name)
    if own in ("convolution", "_convolution"):
        made = _convolved(op.concrete, given)
        return Node(0, 0, op.name, 0, 0, (*given, op.concrete[6:7] == ("True",)), made)
    mask = _numbers(op.concrete[-1]) if own in CONVOLUTIONS_BACK and op.concrete else ()
    return Node(0, 0, op.name, 0, 0, (*given, tuple(one != 0 for one in mask)) if len(mask) == 3 else (*given,), ())


def _convolved(concrete: Sequence[str], given: Sequence[TraceTensor]) -> tuple[TraceTensor, ...]:
    """The output of aten::convolution, from its stride, padding and dilation; nothing where the profile does not have them."""
    if len(concrete) < 8 or len(given) < 2 or len(given[0].shape) != len(given[1].shape) or len(given[0].shape) < 3:
        return ()
    image, filters = given[0].shape, given[1].shape
    stride, padding, dilation, more = (_numbers(concrete[at]) for at in (3, 4, 5, 7))
    if not len(stride) == len(padding) == len(dilation) == len(image) - 2 or min(stride, default=0) < 1:
        return ()
    taps = [d * (one - 1) for one, d in zip(filters[2:], dilation, strict=True)]
    if concrete[6] == "True":
        more = more if len(more) == len(stride) else [0] * len(stride)
        sizes = [
            (a - 1) * s - 2 * p + t + o + 1
            for a, s, p, t, o in zip(image[2:], stride, padding, taps, more, strict=True)
        ]
        channels = filters[1]
    else:
        sizes = [(a + 2 * p - t - 1) // s + 1 for a, s, p, t in zip(image[2:], stride, padding, taps, strict=True)]
        channels = filters[0]
    shape = (image[0], channels, *sizes)
    return (replace(given[0], shape=shape),) if min(shape) >= 0 else ()


def _numbers(text: str) -> list[int]:
    """[1, 1] of "[1, 1]"; truth values are 1 and 0."""
    words = text.strip("[]").replace("True", "1").replace("False", "0").split(",")
    return [int(one) for one in words if one.strip().lstrip("-").isdecimal() and len(one) < 12]


def _tensors(dims: Any, kind: str) -> list[Value]:
    """Tensors of one argument: one, or those of a list."""
    if not isinstance(dims, tuple) or (kind in _NO_TYPES and not dims):
        return []
    if dims and all(isinstance(one, tuple) for one in dims):
        return [one for own in dims for one in _tensors(own, "float" if kind == "TensorList" else kind)]
    if not all(type(one) is int and 0 <= one <= _MOST_SIZE for one in dims):
        return []
    return [TraceTensor(0, 0, 0, item_bytes(kind, 4), "", dims, kind)]
