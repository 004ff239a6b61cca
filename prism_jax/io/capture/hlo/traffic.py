"""Bytes of device memory that an instruction reads and writes: a fusion what goes in and comes out, a slice what it takes.

As XLA's cost analysis counts: a value of which a fusion only takes slices is read slice by slice, and an update in place writes
what it updates. Caches are left out. Values that XLA for CPUs widened count as what they were.
"""

from __future__ import annotations

from typing import NamedTuple

from .moves import own_shape
from .text.types import Computation, Instruction, Module

_FUSIONS = (
    "fusion",
    "fusion-start",
)  # the second beside others, on GPUs; what it hands on besides its result is no traffic
_LIBRARIES = ("__cublas$", "__cudnn$", "__triton")
_SLICES = ("dynamic-slice", "slice", "gather")
_ALONE = ("bitcast", "copy", "convert", "reshape")


class Traffic(NamedTuple):
    """Bytes read and bytes written."""

    read: float
    written: float


def traffic_of(module: Module, computation: Computation, instruction: Instruction) -> Traffic:
    """Bytes of one run of an instruction."""
    opcode = instruction.opcode
    if opcode in _FUSIONS:
        called = module.called(instruction, "calls")
        if called is not None:
            return _fused(module, computation, instruction, called)
    operands = [computation.instructions[name] for name in instruction.operands]
    if opcode in _SLICES:
        indices = operands[1].n_bytes if opcode == "gather" and len(operands) > 1 else 0.0
        return Traffic(instruction.n_bytes + indices, instruction.n_bytes)
    if opcode == "dynamic-update-slice" and len(operands) > 1:
        return Traffic(operands[1].n_bytes, operands[1].n_bytes)
    if opcode == "scatter" and len(operands) > 2:
        updates = operands[2].n_bytes
        return Traffic(2.0 * updates + operands[1].n_bytes, updates)
    if opcode == "copy-start":
        n_bytes = operands[0].n_bytes if operands else 0.0
        return Traffic(n_bytes, n_bytes)
    return Traffic(sum(one.n_bytes for one in operands), instruction.n_bytes - _scratch_bytes(instruction))


def _scratch_bytes(instruction: Instruction) -> float:
    """Bytes that a call into a library lists behind its results for it to work in; what it needs of them stays in the cache."""
    target, last = instruction.attributes.get("custom_call_target", "").strip('"'), instruction.shapes[-1:]
    is_library = len(instruction.shapes) > 1 and target.startswith(_LIBRARIES)
    return last[0].n_bytes if is_library and last[0].dtype in ("s8", "u8") else 0.0


def _fused(module: Module, computation: Computation, fusion: Instruction, called: Computation) -> Traffic:
    read = 0.0
    for parameter in called.instructions.values():
        if parameter.opcode != "parameter":
            continue
        given = module.operand(computation, fusion, parameter.number)
        whole = given.n_bytes
        own = own_shape(module, computation, given.name).n_bytes if len(given.shapes) == 1 else whole
        read += min(whole, _read_of(called, parameter, whole)) * (own / whole if whole else 1.0)
    return Traffic(read, _written(called, fusion))


def _read_of(called: Computation, parameter: Instruction, whole: float) -> float:
    """Bytes of a parameter that the fused computation reads."""
    total, values, seen = 0.0, [parameter.name], {parameter.name}
    while values:
        value = values.pop()
        for user in called.users_of(value):
            if user.opcode == "bitcast":  # the same bytes under another shape
                values += [user.name] if user.name not in seen else []
                seen.add(user.name)
            elif user.opcode in _SLICES and user.operands[0] == value:
                total += user.n_bytes
            elif not (user.opcode == "dynamic-update-slice" and user.operands[0] == value):
                return whole
    return total


def _written(called: Computation, fusion: Instruction) -> float:
    root = called.instructions[called.root]
    results = [called.instructions[name] for name in root.operands] if root.opcode == "tuple" else [root]
    written = 0.0
    for result in results:
        at = result
        while at.opcode in _ALONE and at.operands:
            at = called.instructions[at.operands[0]]
        if at.opcode == "dynamic-update-slice" and len(at.operands) > 1:
            written += called.instructions[at.operands[1]].n_bytes
        else:
            written += result.n_bytes
    return min(written, fusion.n_bytes)
