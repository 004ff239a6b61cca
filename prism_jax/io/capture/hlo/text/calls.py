"""Which computation calls which: every one exists, and none reaches itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .types import Instruction, Module

CALLERS = ("calls", "to_apply", "body", "condition", "branch_computations", "called_computations")
CALLERS += ("true_computation", "false_computation")
_NAME = re.compile(r"%?([\w.\-]+)")


def callees(instruction: Instruction) -> Iterator[str]:
    """Names of the computations that an instruction calls."""
    for attribute in CALLERS:
        if value := instruction.attributes.get(attribute):
            yield from _NAME.findall(value)


def check_calls(module: Module) -> Module:
    """The module itself.

    Raises:
        DataError: as `callees_first`.
    """
    callees_first(module)
    return module


def callees_first(module: Module) -> list[str]:
    """Names of all computations, every one after those that it calls.

    Raises:
        DataError: a computation that is called is not there, or calls itself, by way of others too; names the line of a call.
    """
    edges = {name: list(_edges(module, name)) for name in module.computations}
    done: dict[str, None] = {}
    for start in edges:
        _follow(module, start, edges, done)
    return list(done)


def _edges(module: Module, name: str) -> Iterator[tuple[str, int]]:
    seen = set()
    for instruction in module.computations[name].instructions.values():
        for called in callees(instruction):
            if called not in module.computations:
                raise module.refused(
                    instruction.line, f"there is no computation {called[:60]!r}. The file was cut off."
                )
            if called not in seen:
                seen.add(called)
                yield called, instruction.line


def _follow(module: Module, start: str, edges: dict[str, list[tuple[str, int]]], done: dict[str, None]) -> None:
    """Follows calls, depth first, with a stack of its own."""
    if start in done:
        return
    path, stack = {start}, [(start, iter(edges[start]))]
    while stack:
        name, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            stack.pop()
            path.discard(name)
            done[name] = None
            continue
        called, line = following
        if called in path:
            raise module.refused(line, f"the computation {called[:60]} calls itself, by way of {name[:60]}")
        if called not in done:
            path.add(called)
            stack.append((called, iter(edges[called])))
