"""Reads which devices take part in a collective, and which dimension of the mesh such a group runs along.

`{{0,1},{2,3}}` lists, `[4,2]<=[2,4]T(1,0)` counts through a transposed block, `mesh['dp'=2,'tp'=4] {'dp'}` names dimensions, and
`{}` means everybody. Numbers are those of the logical devices: positions in the device assignment.

Where nobody says what the mesh is, the groups show which dimensions there seem to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, Any

from ...core.lazy import np
from ...workload.captured.program import USUAL_ROLES
from .types import Instruction, Module

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Members = NDArray[Any]

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?$")
_LISTS = re.compile(r"\{(\s*\{[\d,\s]*\}\s*,?)*\s*\}$")
_LIST = re.compile(r"\{([\d,\s]*)\}")
_MESH = re.compile(r"mesh\[([^\]]*)\](.*?)\{([^{}]*)\}\s*$")
_MESH_AXIS = re.compile(r"'([^']*)'=(\d+)")
_DEVICE_IDS = re.compile(r"device_ids=\(?(\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)\)?")
_PART = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?$")
_PAIR = re.compile(r"\{(\d+)\s*,\s*(\d+)\}")
_MOST_DIGITS = 9


@dataclass(frozen=True)
class Groups:
    """The groups of one collective.

    Attributes:
        members: [group, member] logical device numbers.
        names: dimensions of the mesh that the text itself names; empty where it does not.
    """

    members: Members
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of devices in a group."""
        return self.members.shape[1]

    @property
    def stride(self) -> int:
        """Smallest distance between two members of the first group that are neighbours in it; 1 for a group of one."""
        first = np.sort(self.members[0])
        return int(np.diff(first).min()) if len(first) > 1 else 1


def replica_groups(module: Module, instruction: Instruction) -> Groups:
    """The groups of an instruction.

    Raises:
        DataError: no groups, an unknown notation, groups of different sizes, or devices that the module has not.
    """
    text = instruction.attributes.get("replica_groups")
    if text is None:
        raise _refused(module, instruction, "has no replica_groups")
    members, names = _members(module, instruction, text.strip())
    if members.size == 0:
        raise _refused(module, instruction, "has an empty replica group")
    flat = np.sort(members.ravel())
    if flat[0] < 0 or flat[-1] >= _most(module, instruction):
        raise _refused(module, instruction, f"names device {flat[-1]}, but the module has {module.n_devices}")
    if (np.diff(flat) == 0).any():
        raise _refused(module, instruction, "has the same device in its groups twice")
    return Groups(members, names)


def _most(module: Module, instruction: Instruction) -> int:
    """Devices that may be named: replicas alone where the numbers are not global."""
    is_global = instruction.attributes.get("use_global_device_ids") == "true"
    if is_global or module.n_replicas == 1:
        return module.n_devices
    return module.n_replicas


def _members(module: Module, instruction: Instruction, text: str) -> tuple[Members, tuple[str, ...]]:
    if text in ("{}", "{{}}"):
        return np.arange(_most(module, instruction))[None, :], ()
    if _IOTA.match(text):
        return _iota(module, instruction, text), ()
    if found := _MESH.match(text):
        return _mesh(module, instruction, found)
    if text.startswith("{") and _LISTS.match(text):
        rows = [_row(module, instruction, row) for row in _LIST.findall(text[1:-1])]
        if len({len(row) for row in rows}) > 1:
            raise _refused(module, instruction, "has groups of different sizes, which is not read")
        return np.array(rows, dtype=np.int64), ()
    raise _refused(module, instruction, f"has groups in an unknown notation: {text[:60]}")


def _row(module: Module, instruction: Instruction, text: str) -> list[int]:
    return [_number(module, instruction, part) for part in text.split(",") if part.strip()]


def _number(module: Module, instruction: Instruction, text: str) -> int:
    if len(text.strip()) > _MOST_DIGITS or not text.strip().isdigit():
        raise _refused(module, instruction, f"has {text[:40]!r} in its groups")
    return int(text)


def _iota(module: Module, instruction: Instruction, text: str) -> Members:
    found = _IOTA.match(text)
    if found is None:
        raise _refused(module, instruction, f"has groups in an unknown notation: {text[:60]}")
    shape, block = _row(module, instruction, found[1]), _row(module, instruction, found[2])
    order = _row(module, instruction, found[3]) if found[3] else list(range(len(block)))
    n = prod(block)
    if n != prod(shape) or n < 1 or n > module.n_devices or sorted(order) != list(range(len(block))):
        raise _refused(module, instruction, f"has groups {text[:60]}, which do not fit {module.n_devices} devices")
    return np.arange(n).reshape(block).transpose(order).reshape(-1, shape[-1])


def _mesh(module: Module, instruction: Instruction, found: re.Match[str]) -> tuple[Members, tuple[str, ...]]:
    axes = _MESH_AXIS.findall(found[1])
    sizes = [_number(module, instruction, size) for _, size in axes]
    n = prod(sizes)
    if not 1 <= n <= module.n_devices:
        raise _refused(module, instruction, f"has a mesh of {n} devices, but the module has {module.n_devices}")
    ids = _DEVICE_IDS.search(found[2])
    block = _iota(module, instruction, ids[1]).reshape(-1) if ids else np.arange(n)
    if block.size != n:
        raise _refused(module, instruction, f"has {block.size} devices in a mesh of {n}")
    whole, names = [name for name, _ in axes], []
    split, inside = list(sizes), []
    owners = list(range(len(sizes)))
    for part in (part.strip() for part in found[3].split(",") if part.strip()):
        one = _PART.match(part)
        if one is None or one[1] not in whole:
            raise _refused(module, instruction, f"has {part[:40]!r} in its groups, which is no dimension of its mesh")
        names.append(one[1])
        position = owners.index(whole.index(one[1]))
        if one[2] is None:
            inside.append((whole.index(one[1]), 0))
            continue
        before, size = _number(module, instruction, one[2]), _number(module, instruction, one[3])
        length = sizes[whole.index(one[1])]
        if before < 1 or size < 1 or length % (before * size) or split[position] != length:
            raise _refused(module, instruction, f"has the part {part[:40]!r} of a dimension of {length}")
        split[position : position + 1] = [before, size, length // (before * size)]
        owners[position : position + 1] = [owners[position]] * 3
        inside.append((whole.index(one[1]), 1))
    chosen = [owners.index(owner) + offset for owner, offset in inside]
    if len(set(chosen)) < len(chosen):
        raise _refused(module, instruction, "names a dimension of its mesh twice")
    others = [number for number in range(len(split)) if number not in chosen]
    size = prod(split[number] for number in chosen)
    return block.reshape(split).transpose([*others, *chosen]).reshape(-1, size), tuple(names)


def permuted_pairs(module: Module, instruction: Instruction) -> Members:
    """Source and target of every message of a collective-permute, [pair, 2].

    Raises:
        DataError: none, or devices that the module has not.
    """
    text = instruction.attributes.get("source_target_pairs", "")
    pairs = [_row(module, instruction, f"{a},{b}") for a, b in _PAIR.findall(text)]
    if not pairs:
        raise _refused(module, instruction, "has no source_target_pairs")
    found = np.array(pairs, dtype=np.int64)
    if found.max() >= module.n_devices:
        text = f"sends to or from device {found.max()}, but the module has {module.n_devices}"
        raise _refused(module, instruction, text)
    return found


def _refused(module: Module, instruction: Instruction, text: str) -> Exception:
    return module.refused(instruction.line, f"{instruction.opcode} {instruction.name[:60]} {text}")


_MOST_ORDERED = 6  # dimensions
_MADE_UP = re.compile(r"axis_\d+$")  # names that XLA gives to dimensions of its own


@dataclass(frozen=True)
class MeshAxes:
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


def known_axes(sizes: Mapping[str, int], found: Iterable[Groups]) -> MeshAxes:
    """A mesh that is stated; its dimensions in the order that fits most groups, in the given order if that does."""
    first = {tuple(groups.members[0].tolist()) for groups in found}
    orders = permutations(sizes) if len(sizes) <= _MOST_ORDERED else (tuple(sizes),)
    best = max(orders, key=lambda order: sum(_is_along([sizes[name] for name in order], one) for one in first))
    return MeshAxes({name: sizes[name] for name in best}, {})


def _is_along(sizes: list[int], members: tuple[int, ...]) -> bool:
    """Whether members are all devices that differ along some dimensions only."""
    if max(members) >= prod(sizes):
        return False
    where = np.stack(np.unravel_index(np.array(members), sizes))
    varies = [size for size, row in zip(sizes, where, strict=True) if len(np.unique(row)) > 1]
    return prod(varies) == len(members)


def guessed_axes(found: Iterable[tuple[Groups, bool]]) -> MeshAxes:
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
    return MeshAxes({called[key]: key[0] for key in outer}, roles, {called[key]: known[key] for key in order})
