"""Which pass and which layer of the user's model an instruction belongs to, by the names that JAX leaves in the metadata.

`jit(step)/transpose(jvp(Model))/layers/dot_general`: JAX names what differentiation made of a program. What has neither mark and
depends on gradients is the optimizer. `rematted_computation` is forward work that runs again in the backward pass.
"""

from __future__ import annotations

import re

from .text.types import Computation, Instruction, Module

AGAIN = ("rematted_computation", ".remat")  # of JAX, of XLA
_TIMELESS = ("constant", "parameter", "iota", "partition-id", "replica-id")
_ORDER = {"F": 0, "B": 1, "opt": 2}
_WRAPS = re.compile(r"^(?:jit|pjit|jvp|transpose|vmap|remat|custom_jvp|custom_vjp|shard_map|xmap|pmap)\((.*)\)$")
# fmt: off
_NO_LAYER = frozenset({
    "while", "body", "cond", "checkpoint", "rematted_computation", "eval_jaxpr", "closed_call", "core_call",
    "remat", "pjit", "scan", "branch_0_fun", "branch_1_fun", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "shard_map", "jvp", "transpose",
})
# fmt: on
MOST_MODULE = 200


def phase_of(
    module: Module, computation: Computation, instruction: Instruction, known: dict[str, str], parent: str
) -> str:
    """F, B or opt.

    Args:
        known: phases of the instructions before it, of the same computation, by name.
        parent: phase of the loop or call that it runs in.
    """
    if instruction.opcode in _TIMELESS:
        return parent
    name = named(module, instruction)
    if marked := _marked(name):
        return marked
    before = [known.get(operand, parent) for operand in instruction.operands]
    latest = max(before, key=_ORDER.__getitem__, default=parent)
    if parent == "B" or not name:
        return latest
    return "opt" if latest != "F" else parent


def named(module: Module, instruction: Instruction) -> str:
    """Its name in the user's program; of a fusion without one, that of its root or of the last of its parts that has one."""
    if instruction.op_name or instruction.opcode not in ("fusion", "call"):
        return instruction.op_name
    called = module.called(instruction, "calls", "to_apply")
    if called is None:
        return ""
    root = called.instructions[called.root].op_name
    return root or next((one.op_name for one in reversed(list(called.instructions.values())) if one.op_name), "")


def _marked(name: str) -> str:
    if "transpose(" in name or "rematted_computation" in name:
        return "B"
    return "F" if "jvp(" in name else ""


def is_again(module: Module, instruction: Instruction) -> bool:
    """Whether it repeats work of the forward pass."""
    return AGAIN[0] in named(module, instruction) or AGAIN[1] in instruction.name


def layer_of(name: str) -> str:
    """Path of the layer: `jit(step)/jvp(Model)/mlp/dot_general` is `Model/mlp`."""
    if name.startswith("(") or ":" in name:  # several that XLA merged
        return ""
    parts = name.split(";", 1)[0].split("/")[:-1]
    kept = []
    for part in parts[1:]:
        while found := _WRAPS.match(part):
            part = found[1]
        if part and part not in _NO_LAYER and not part.startswith(("jit(", "pjit(")):
            kept.append(part)
    return "/".join(kept)[:MOST_MODULE]
