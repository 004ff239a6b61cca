"""HLO as it is read here: modules of computations of instructions, with shapes; unused parts are left out.

Computations that a module calls exist, and none reaches itself.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod

from ...core.errors import DataError

MOST_BEHIND = 256
# Name in HLO -> bytes of an element, name in captured programs.
DTYPES: Mapping[str, tuple[float, str]] = {
    "pred": (1.0, "bool"),
    "bf16": (2.0, "bf16"),
    "f16": (2.0, "fp16"),
    "f32": (4.0, "fp32"),
    "f64": (8.0, "fp64"),
    "c64": (8.0, "fp32"),
    "c128": (16.0, "fp64"),
    **dict.fromkeys(("s64", "u64"), (8.0, "int64")),
    **dict.fromkeys(("s32", "u32"), (4.0, "int32")),
    **dict.fromkeys(("s16", "u16"), (2.0, "int16")),
    **dict.fromkeys(("s8", "u8"), (1.0, "int8")),
    **dict.fromkeys(("s4", "u4"), (0.5, "int8")),
    **dict.fromkeys(("s2", "u2"), (0.25, "int8")),
    **dict.fromkeys(("s1", "u1"), (0.125, "int8")),
    **dict.fromkeys(("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"), (1.0, "fp8")),
    **dict.fromkeys(("f8e3m4", "f8e8m0fnu"), (1.0, "fp8")),
    "f4e2m1fn": (0.5, "fp4"),
    "token": (0.0, "bool"),
    "opaque": (0.0, "bool"),
}


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Type of an array: its dtype as HLO calls it, and its dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def n_elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.dims)

    @property
    def n_bytes(self) -> float:
        """Bytes in memory, without padding."""
        return self.n_elements * DTYPES[self.dtype][0]

    @property
    def is_float(self) -> bool:
        """Whether the element type is floating point."""
        return self.dtype.startswith(("f", "bf"))

    @property
    def plain_dtype(self) -> str:
        """Name of the dtype in captured programs."""
        return DTYPES[self.dtype][1]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        shapes: of its result; of a tuple those of all its leaves, in order.
        operands: names of instructions of the same computation.
        attributes: text behind the operands, as written.
        literal: text in place of the operands of a constant or parameter, cut short.
        op_name: of its metadata: which part of the user's program it comes from.
        line: in the file, from 1.
    """

    name: str
    opcode: str
    shapes: tuple[ArrayShape, ...]
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    literal: str
    op_name: str
    line: int

    @property
    def number(self) -> int:
        """Index of the argument that a parameter is, or of the element that a get-tuple-element takes; the parser has checked
        it.
        """
        return int(self.literal if self.opcode == "parameter" else self.attributes["index"])

    @property
    def target(self) -> str:
        """The library function that a custom-call calls; empty for all else."""
        return self.attributes.get("custom_call_target", "").strip('"')

    @property
    def n_bytes(self) -> float:
        """Bytes of the result."""
        return sum(shape.n_bytes for shape in self.shapes)

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """An attribute that is a list of numbers, `{0,2}`; empty where there is none."""
        text = self.attributes.get(attribute, "").strip("{} ")
        return tuple(int(part) for part in text.split(",")) if text else ()


@dataclass(frozen=True, slots=True)
class Computation:
    """Instructions by name, in the order in which they run where the module is scheduled.

    Attributes:
        root: name of the one that makes the result.
        line: in the file.
        users: name -> names of the instructions that read it, each once.
    """

    name: str
    instructions: Mapping[str, Instruction]
    root: str
    line: int
    users: Mapping[str, Sequence[str]]

    def behind(self, at: Instruction, opcodes: Container[str]) -> Instruction:
        """Returns the instruction that makes a value, behind instructions of some kinds (by first operands); at most
        `MOST_BEHIND` steps.
        """
        for _ in range(MOST_BEHIND):
            if at.opcode not in opcodes or not at.operands:
                break
            at = self.instructions[at.operands[0]]
        return at

    def users_of(self, name: str) -> Iterator[Instruction]:
        """Instructions that read a value."""
        return (self.instructions[user] for user in self.users.get(name, ()))


@dataclass(frozen=True, slots=True)
class Module:
    """One program, as one of its devices runs it.

    Attributes:
        file: name in messages.
        entry: name of the computation that starts.
        n_replicas, n_partitions: whose product is the number of devices.
        is_scheduled: instructions stand in the order in which they run.
    """

    name: str
    file: str
    computations: Mapping[str, Computation]
    entry: str
    n_replicas: int
    n_partitions: int
    is_scheduled: bool

    @property
    def n_devices(self) -> int:
        """Number of devices that run the program."""
        return self.n_replicas * self.n_partitions

    def refused(self, line: int, text: str) -> DataError:
        """Returns the error of one of the module's lines."""
        return refusal(self.file, line, text)

    def operand(self, computation: Computation, instruction: Instruction, index: int) -> Instruction:
        """The instruction that makes an operand.

        Raises:
            DataError: it has no such operand.
        """
        if index >= len(instruction.operands):
            text = f"{instruction.opcode} has {len(instruction.operands)} operands, but {index + 1} are needed"
            raise self.refused(instruction.line, text)
        return computation.instructions[instruction.operands[index]]

    def callers(self, *opcodes: str) -> dict[str, list[tuple[Computation, Instruction]]]:
        """Body of a loop, or computation of a call -> where it is called from; `opcodes`: while, call."""
        found: dict[str, list[tuple[Computation, Instruction]]] = {}
        for computation in self.computations.values():
            for one in computation.instructions.values():
                if one.opcode in opcodes and (called := self.called(one, "body", "to_apply")) is not None:
                    found.setdefault(called.name, []).append((computation, one))
        return found

    def called(self, instruction: Instruction, *attributes: str) -> Computation | None:
        """The computation that the first of some attributes names; None where it has none of them."""
        for attribute in attributes:
            if name := instruction.attributes.get(attribute):
                return self.computations[name.lstrip("%")]
        return None


def refusal(file: str, line: int, text: str) -> DataError:
    """Error with its place: `dump.txt:12: text`."""
    return DataError(f"{file}:{line}: {text}", text=text)


CALLERS = ("calls", "to_apply", "body", "condition", "branch_computations", "called_computations")
CALLERS += ("true_computation", "false_computation")
_NAME = re.compile(r"%?([\w.\-]+)")


def callees(instruction: Instruction) -> Iterator[str]:
    """Names of the computations that an instruction calls."""
    for attribute in CALLERS:
        if value := instruction.attributes.get(attribute):
            yield from _NAME.findall(value)


def callees_first(module: Module) -> list[str]:
    """Names of all computations, every one after those that it calls.

    Raises:
        DataError: a computation that is called is not there, or calls itself, by way of others too; names the line of a call.
    """
    calls = {name: dict(_calls(module, name)) for name in module.computations}
    try:
        return list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        called, name, *_ = error.args[1]
        text = f"the computation {called[:60]} calls itself, by way of {name[:60]}"
        raise module.refused(calls[name][called], text) from None


def _calls(module: Module, name: str) -> Iterator[tuple[str, int]]:
    """Yields the computations that a computation calls, with the first line that calls each."""
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
