"""Even routing: values that code which sends tokens to experts would see if every expert got as many tokens as any other.

A capture has no values, so how many tokens an expert gets is an assumption. Indices that `topk` or `argmax` chose among n classes
are remembered with n; a comparison of them with one class is true for one element in n; what `nonzero`, `torch.where`, a boolean
index and `bincount` make of it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

# pyright: reportMissingImports=false


ASSUMPTION = "Routing is even: every expert gets the same number of tokens."
_CHOOSING = {"topk": 1, "sort": 1, "max": 1, "argmax": 0, "argsort": 0}
_SAME = frozenset({
    "_to_copy", "clone", "copy_", "contiguous", "gt", "ge", "ne", "lt", "logical_not", "bitwise_or", "logical_or",
    "all_to_all_single", "wait_tensor",
})  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """Facts known of the values of a tensor.

    Attributes:
        classes: its elements are numbers below it, all as frequent.
        share: of its elements that are not zero.
        mean: of its elements.
    """

    classes: int = 0
    share: float = 0.0
    mean: float = 0.0


class EvenRouting:
    """Follows chosen indices through a step; `used` tells whether any result depends on it."""

    def __init__(self) -> None:
        self._known = WeakIdKeyDictionary()
        self.used = False

    def answer(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operation whose shape or value depends on data; NotImplemented where it does not, or is not known."""
        rule = _ANSWERS.get(func.overloadpacket.__name__)
        if rule is None:
            return NotImplemented
        found = rule(self, args, kwargs)
        self.used |= found is not NotImplemented
        return found

    def of(self, value: Any) -> _Known | None:
        """Returns the facts known of a tensor's values."""
        return self._known.get(value) if isinstance(value, Tensor) else None

    def learn(self, func: Any, args: Sequence[Any], out: Any) -> None:
        """Notes the facts that follow for the result of an operation."""
        name = func.overloadpacket.__name__
        if name in _CHOOSING:
            chosen = (
                out if isinstance(out, Tensor) else out[1] if isinstance(out, (tuple, list)) and len(out) > 1 else None
            )
            if isinstance(chosen, Tensor) and args[0].dim():
                self._known[chosen] = _Known(classes=args[0].shape[_dim(args, -1)])
            return
        known = self.of(args[0]) if args else None
        if known is None or not isinstance(out, (Tensor, list, tuple)):
            return
        for one in [out] if isinstance(out, Tensor) else out:
            if isinstance(one, Tensor) and (found := _follows(name, func, known, args, one)) is not None:
                self._known[one] = found

    def count(self, mask: Tensor) -> int | None:
        """Elements of a mask that are true."""
        known = self.of(mask)
        if known is None or not known.share:
            return None
        return round(known.share * mask.numel())

    def note(self, tensor: Tensor, known: _Known) -> Tensor:
        """Remembers the known facts of a tensor."""
        self._known[tensor] = known
        return tensor


def _dim(args: Sequence[Any], default: int) -> int:
    return next((one for one in args[2:] if isinstance(one, int) and not isinstance(one, bool)), default)


def _follows(name: str, func: Any, known: _Known, args: Sequence[Any], out: Tensor) -> _Known | None:
    if func.is_view or name in _SAME or name.startswith("_unsafe_view"):
        return known
    if name == "eq" and known.classes:
        return _Known(share=1.0 / known.classes)
    if name in ("any", "sum", "amax"):
        merged = args[0].numel() / max(out.numel(), 1)
        each = known.share or known.mean
        return _Known(share=min(1.0, known.share * merged), mean=each * merged if name == "sum" else 0.0)
    if name in ("bitwise_and", "logical_and", "mul") and known.share:
        return _Known(share=known.share)
    return None


def _nonzero(routing: EvenRouting, args: Sequence[Any], _: dict[str, Any]) -> Any:
    (mask,) = args
    n = routing.count(mask)
    return NotImplemented if n is None else mask.new_empty((n, mask.dim()), dtype=torch.int64)


def _index(routing: EvenRouting, args: Sequence[Any], _: dict[str, Any]) -> Any:
    """`x[mask]` with one boolean mask."""
    source, indices = args
    mask = next((one for one in indices if one is not None), None)
    if mask is None or mask.dtype not in (torch.bool, torch.uint8) or len(indices) != 1:
        return NotImplemented
    n = routing.count(mask)
    return NotImplemented if n is None else source.new_empty((n, *source.shape[mask.dim() :]))


def _selected(routing: EvenRouting, args: Sequence[Any], _: dict[str, Any]) -> Any:
    n = routing.count(args[1])
    return NotImplemented if n is None else args[0].new_empty((n,))


def _bincount(routing: EvenRouting, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    chosen, known = args[0], routing.of(args[0])
    if known is None or not known.classes:
        return NotImplemented
    n = max(known.classes, kwargs.get("minlength", args[2] if len(args) > 2 else 0))
    return routing.note(chosen.new_empty((n,), dtype=torch.int64), _Known(mean=prod(chosen.shape) / known.classes))


def _item(routing: EvenRouting, args: Sequence[Any], _: dict[str, Any]) -> Any:
    known = routing.of(args[0])
    return round(known.mean) if known is not None and known.mean else NotImplemented


_ANSWERS: dict[str, Callable[[EvenRouting, Sequence[Any], dict[str, Any]], Any]] = {
    "nonzero": _nonzero,
    "index": _index,
    "masked_select": _selected,
    "bincount": _bincount,
    "_local_scalar_dense": _item,
}
