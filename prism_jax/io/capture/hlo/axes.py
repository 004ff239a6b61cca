"""Dimensions of the mesh: which one a group of devices runs along; where nobody says what the mesh is, which there seem to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from math import prod

from ...._core.lazy_numpy import np
from ....workload.captured.program import USUAL_ROLES
from .groups import Groups

_MOST_ORDERED = 6  # dimensions
_MADE_UP = re.compile(r"axis_\d+$")  # names that XLA gives to dimensions of its own


@dataclass(frozen=True)
class Axes:
    """The mesh of a program.

    Attributes:
        sizes: dimension -> size, outermost first; devices are numbered in this order.
        guessed: dimension -> role, of those that were only found among the groups; empty where the mesh is known.
        groups: dimension -> groups along it, where it was guessed.
    """

    sizes: Mapping[str, int]
    guessed: Mapping[str, str]
    groups: Mapping[str, Groups] = field(default_factory=dict)

    def along(self, groups: Groups) -> str:
        """Name of the largest dimension that the members of a group differ in."""
        if self.guessed:
            return self._found(groups)
        sizes = list(self.sizes.values())
        first = groups.members[0]
        if first.max() >= prod(sizes):
            return max(self.sizes, key=self.sizes.__getitem__)
        where = np.stack(np.unravel_index(first, sizes))
        varies = [(len(np.unique(row)), name) for name, row in zip(self.sizes, where, strict=True)]
        return max(varies, key=lambda one: one[0])[1]

    def _found(self, groups: Groups) -> str:
        first = set(groups.members[0].tolist())
        for name, known in self.groups.items():  # the smallest groups first
            at = np.argwhere(known.members == groups.members[0, 0])
            if len(at) and first <= set(known.members[at[0, 0]].tolist()):
                return name
        return next(iter(self.groups))


def known_axes(sizes: Mapping[str, int], found: Iterable[Groups]) -> Axes:
    """A mesh that is stated; its dimensions in the order that fits most groups, in the given order if that does."""
    first = {tuple(groups.members[0].tolist()) for groups in found}
    orders = permutations(sizes) if len(sizes) <= _MOST_ORDERED else (tuple(sizes),)
    best = max(orders, key=lambda order: sum(_is_along([sizes[name] for name in order], one) for one in first))
    return Axes({name: sizes[name] for name in best}, {})


def _is_along(sizes: list[int], members: tuple[int, ...]) -> bool:
    """Whether members are all devices that differ along some dimensions only."""
    if max(members) >= prod(sizes):
        return False
    where = np.stack(np.unravel_index(np.array(members), sizes))
    varies = [size for size, row in zip(sizes, where, strict=True) if len(np.unique(row)) > 1]
    return prod(varies) == len(members)


def guessed_axes(found: Iterable[tuple[Groups, bool]]) -> Axes:
    """A mesh of which only groups are known: one dimension for every size and stride of groups.

    Args:
        found: groups of a collective, and whether it sums activations: a reduction of more than a number in the forward pass.

    Notes:
        Dimensions along which activations are summed are tensor-parallel, others data-parallel, where their names do not say
        more. Pairs belong to the smallest groups that hold them.
    """
    known: dict[tuple[int, int], Groups] = {}
    names: dict[tuple[int, int], str] = {}
    sums: set[tuple[int, int]] = set()
    for groups, is_sum in found:
        key = groups.size, groups.stride
        known.setdefault(key, groups)
        if groups.names and not any(_MADE_UP.match(name) for name in groups.names):
            names.setdefault(key, "+".join(groups.names)[:60])
        sums |= {key} if is_sum else set()
    whole = [key for key in known if key[0] > 2 or key[1] * 2 == known[key].members.size or len(known) == 1] or list(
        known
    )
    order = sorted(whole, key=lambda key: (key[0], key[1]))
    called = {key: names.get(key, f"group{key[0]}x{key[1]}") for key in order}
    roles = {called[key]: USUAL_ROLES.get(called[key].lower(), "tp" if key in sums else "dp") for key in order}
    outer = sorted(order, key=lambda key: -key[1])
    return Axes({called[key]: key[0] for key in outer}, roles, {called[key]: known[key] for key in order})
