"""`Flattened`: operations one by one, as a device runs them, and the readers of their results.

XLA for CPUs repeats cheap operations in every fusion that reads them and ends fusions where a GPU would not. Here fusions are
taken apart and equal operations of equal values are one, so that `chains` finds those that one kernel does, from who reads what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...workload.captured.chains import (
    COPY,
    KERNEL,
    MINOR,
    OTHER,
    POINTWISE,
    REDUCTION,
    SCATTER,
    ChainStep,
    Link,
    links,
)
from .flat_values import (
    NO_VALUES,
    SLICES,
    VIEWS,
    Names,
    Slices,
    Value,
    least_operands,
    outside,
    part_of,
    read_operands,
    role_of,
)
from .moves import Place, is_widening, own_shape
from .rows import LEAST_BYTES
from .types import Computation, Instruction, Module
from .walk import Visit

MOST_OPERATIONS = 100_000
MOST_SEEN = 2_000_000  # instructions of fusions, with their operands
_MOST_READS = 64  # of one operation that are told apart
_MOST_NESTED = 64  # fusions in fusions
Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation with its reads and writes.

    Attributes:
        place: its computation and instruction.
        outer: fusions that it is inside of, outermost first.
        reads: values.
        written: bytes of its results.
        stretch: number of the stretch between beginnings and ends of loops that it runs in.
    """

    role: str
    phase: str
    stretch: int
    reads: tuple[Value, ...]
    written: float
    place: Place | None = None
    outer: tuple[Place, ...] = ()

    @property
    def n_bytes(self) -> float:
        """Bytes moved if nothing is fused."""
        return sum(value.n_bytes for value in self.reads) + self.written


class Flattened:
    """The operations of a walk.

    Attributes:
        operations: in order; some only stand for who reads a value outside of the pass.
    """

    def __init__(self, module: Module, *, through_loops: bool) -> None:
        self._module = module
        self._names = Names(module, through_loops=through_loops)
        self._known: dict[tuple[object, ...], Values] = {}
        self._filled: dict[int, float] = {}  # operation that lays parts side by side -> bytes of the parts
        self._loop, self._stretch, self._seen = 0, 0, 0
        # Operations that only move or convert what there was before their loop, or its run, began.
        self._early: set[int] = set()
        self.operations: list[Operation] = []

    def see(self, visit: Visit) -> range:
        """Takes an instruction apart; numbers of the operations that it added."""
        before = len(self.operations)
        at, computation = visit.instruction, visit.computation
        if is_widening(self._module, computation, at):
            arrays = (one for one in at.operands if any(shape.dims for shape in computation.instructions[one].shapes))
            given = next(arrays, at.operands[0])
            self._names.keep(computation, at, (self._names.value(computation, given),))
            return range(before, before)
        called = self._module.called(at, "calls") if at.opcode == "fusion" else None
        given = tuple(self._names.value(computation, name) for name in at.operands)
        place = computation, at
        made = self._operation(visit, place, (), given) if called is None else self._fused(visit, called, given)
        self._names.keep(computation, at, made)
        return range(before, len(self.operations))

    def hand_out(self, visit: Visit) -> None:
        """Notes that the inputs of an instruction have to lie in memory; the result of a sum is as wide as its inputs."""
        at, computation = visit.instruction, visit.computation
        self._sink(visit, [self._names.value(computation, name) for name in at.operands])
        if at.opcode == "all-reduce":
            sizes = [own_shape(self._module, computation, name).n_bytes for name in at.operands]
            made = [outside((computation.name, at.name, number), size) for number, size in enumerate(sizes)]
            self._names.keep(computation, at, tuple(made))

    def hand_on(self, visit: Visit) -> None:
        """Notes the reads of a tuple that enters a loop, goes to its next run, or is the result: they have to lie in memory."""
        at, computation = visit.instruction, visit.computation
        loop = self._names.loop_of(computation) if at.name == computation.root else None
        values = [self._names.value(computation, name) for name in at.operands]
        if loop is not None:
            changed = [number for number in range(len(values)) if not self._names.is_handed_on(computation, number)]
            self._sink(visit, [values[number] for number in changed if values[number].slices is None])
            if self._names.through_loops:
                self._began(visit, loop, [number for number in changed if values[number].slices is None])
        elif at.name == computation.root:
            self._sink(visit, values)
        elif not self._names.through_loops and any(user.opcode == "while" for user in computation.users_of(at.name)):
            self._sink(visit, values)

    def _began(self, visit: Visit, loop: Place, changed: Sequence[int]) -> None:
        given = self._module.operand(*loop, 0)
        if given.opcode == "tuple":
            names = [given.operands[number] for number in changed if number < len(given.operands)]
            self._sink(visit, [self._names.value(loop[0], name) for name in names])

    def _sink(self, visit: Visit, values: Sequence[Value]) -> None:
        reads = tuple(value for value in values if value.maker is not None)
        if reads:
            self._add(Operation(OTHER, visit.phase, self._stretch_of(visit), reads, 0.0))

    def _stretch_of(self, visit: Visit) -> int:
        if visit.loop != self._loop:
            self._loop, self._stretch = visit.loop, self._stretch + 1
        return self._stretch

    def _add(self, one: Operation) -> int:
        if len(self.operations) >= MOST_OPERATIONS:
            text = f"more than {MOST_OPERATIONS:,} operations inside of fusions"
            raise self._module.refused(one.place[1].line if one.place else 1, text)
        number = len(self.operations)
        self.operations.append(one)
        is_move = one.role in (POINTWISE, COPY)
        if is_move and all(value.maker is None or value.maker in self._early for value in one.reads):
            self._early.add(number)
        return number

    def is_early(self, visit: Visit) -> bool:
        """Whether the inputs of an instruction follow from earlier values: parameters, inputs of a loop."""
        values = [self._names.value(visit.computation, name) for name in visit.instruction.operands]
        return all(value.maker is None or value.maker in self._early for value in values)

    def _fused(self, visit: Visit, called: Computation, given: Values) -> Values:
        """Returns the values that a fusion makes; its operations, and those of fusions in it, are added."""
        frames = [_Frame(called, given, ((visit.computation, visit.instruction),))]
        while True:
            frame = frames[-1]
            at = next(frame.rest, None)
            if at is None:
                made = frame.result()
                frames.pop()
                if not frames:
                    return made
                frames[-1].values[frame.outer[-1][1].name] = made
                continue
            inner = self._module.called(at, "calls", "to_apply") if at.opcode in ("fusion", "call") else None
            self._count(at)
            values = tuple(frame.value(name) for name in at.operands)
            if inner is None:
                frame.values[at.name] = self._inside(visit, frame, at, values)
                continue
            if len(frames) >= _MOST_NESTED:
                raise self._module.refused(at.line, f"more than {_MOST_NESTED} fusions inside of each other")
            frames.append(_Frame(inner, values, (*frame.outer, (frame.computation, at))))

    def _count(self, at: Instruction) -> None:
        self._seen += 1 + len(at.operands)
        if self._seen > MOST_SEEN:
            raise self._module.refused(at.line, f"fusions with more than {MOST_SEEN:,} instructions, those in them too")

    def _inside(self, visit: Visit, frame: _Frame, at: Instruction, values: Values) -> Values:
        if at.opcode == "parameter":
            return frame.given[at.number : at.number + 1]
        if at.opcode == "tuple":
            return values
        if at.opcode == "get-tuple-element":
            return frame.values.get(at.operands[0], ())[at.number : at.number + 1]
        return self._operation(visit, (frame.computation, at), frame.outer, values)

    def _operation(self, visit: Visit, place: Place, outer: tuple[Place, ...], given: Values) -> Values:
        """Returns the values that an operation makes of its operands."""
        computation, at = place
        if not at.shapes:
            return ()
        if len(given) < least_operands(at):
            raise self._module.refused(
                at.line, f"{at.opcode} has {len(given)} operands, but needs {least_operands(at)}"
            )
        if at.opcode in VIEWS and (outer or at.opcode != "copy" or self._names.through_loops):
            return given[:1]
        if at.opcode in NO_VALUES:
            n_bytes = 0.0 if at.opcode != "constant" or at.n_bytes <= LEAST_BYTES else at.n_bytes
            return (outside((at.opcode, at.literal, at.shapes), n_bytes),)
        if at.opcode == "convert" and (same := self._unconverted(computation, at, given[0])) is not None:
            return (same,)
        if at.opcode == "convert" and self._is_cast_of_weights(at, given[0]):
            return (outside((given[0].storage, at.shapes), at.n_bytes),)
        if at.opcode in SLICES:
            part = part_of(self._module, computation, at, given[0])
            if (same := self._as_it_is(part, given[0])) is not None:
                return (same,)
            given = (part, *given[1:])
        if at.opcode == "dynamic-update-slice" and self._names.through_loops and given[0].maker is None:
            own = computation.instructions[at.operands[1]].n_bytes
            one = given[1]._replace(slices=None)
            return (Value(("slices", one.storage), one.maker, given[0].n_bytes, 0, Slices(one, own)),)
        return self._once(visit, place, outer, given)

    def _as_it_is(self, part: Value, whole: Value) -> Value | None:
        """The value that a slice of `whole` stands for; None where the slice is work."""
        if part.slices is not None:
            return part.slices.one
        return part if self._names.through_loops or part.n_bytes == whole.n_bytes else None

    def _unconverted(self, computation: Computation, at: Instruction, value: Value) -> Value | None:
        """The value itself where XLA for CPUs converts it for its own ends; None: the program converts it."""
        if value.maker is None and value.n_bytes == at.n_bytes:
            return value  # it was widened before
        source = computation.instructions[at.operands[0]]
        if at.op_name or not source.shapes or not (source.shapes[0].is_float and at.shapes[0].is_float):
            return None
        if at.n_bytes >= value.n_bytes:
            return value
        if value.maker is not None:
            one = self.operations[value.maker]
            if one.written != value.n_bytes or len(computation.users.get(source.name, ())) > 1:
                return None
            self.operations[value.maker] = replace(one, written=at.n_bytes)
        return value._replace(n_bytes=at.n_bytes)

    def _role_of(self, at: Instruction, given: Values) -> str:
        """Returns the role that the operation may have in a kernel."""
        if self._lays_side_by_side(at, given):
            return COPY
        if at.opcode == "custom-call" and "__" in at.target:
            return KERNEL
        role = role_of(at)
        return SCATTER if role == REDUCTION and not self._names.through_loops else role  # a scatter ends a kernel

    def _once(self, visit: Visit, place: Place, outer: tuple[Place, ...], given: Values) -> Values:
        """The operation, or the equal one that was there before."""
        at = place[1]
        attributes = tuple(
            sorted((key, text) for key, text in at.attributes.items() if key not in ("backend_config", "calls"))
        )
        key = (visit.loop, at.opcode, at.shapes, at.literal, attributes, given)
        if (known := self._known.get(key)) is not None:
            return known
        wanted = set(read_operands(at))
        read = (value for name, value in zip(at.operands, given, strict=True) if name in wanted and value.n_bytes)
        reads = tuple(dict.fromkeys(read))
        if at.opcode == "reduce" and reads and (one := self._second_half(at, reads[0])) is not None:
            self._known[key] = (one,)
            return (one,)
        if at.n_bytes <= LEAST_BYTES and sum(value.n_bytes for value in reads) <= 4 * LEAST_BYTES:
            self._known[key] = (outside(("number", len(self._known)), 0.0),)
            return self._known[key]
        if at.opcode == "gather" and reads:
            reads = (self._rows_of(at, reads[0]), *reads[1:])
        written = reads[-1].n_bytes if at.opcode in ("dynamic-update-slice", "scatter") and reads else at.n_bytes
        if at.opcode == "scatter":
            self._sink(visit, given[:1])  # what is added to has to be there
        role = self._role_of(at, given)
        if len(reads) > _MOST_READS:
            self._sink(visit, reads[_MOST_READS:])
            role, reads = OTHER, reads[:_MOST_READS]
        number = self._add(Operation(role, visit.phase, self._stretch_of(visit), reads, written, place, outer))
        if role == COPY:
            self._filled[number] = sum(self._part(value) or value.n_bytes for value in reads)
        made = tuple(Value((number, leaf), number, shape.n_bytes) for leaf, shape in enumerate(at.shapes))
        self._known[key] = made
        return made

    def _is_cast_of_weights(self, at: Instruction, value: Value) -> bool:
        """Whether it makes of an argument the weights in 16 bits, which fused optimizers write with it."""
        is_argument = isinstance(value.storage, tuple) and value.storage[0] == self._module.entry
        return self._names.through_loops and is_argument and value.maker is None and at.n_bytes < value.n_bytes

    def _rows_of(self, at: Instruction, table: Value) -> Value:
        """Rows of a table, in the format it is converted from if it has no other reader."""
        share = min(at.n_bytes / table.n_bytes, 1.0)
        one = None if table.maker is None else self.operations[table.maker]
        if one is not None and one.place is not None and one.place[1].opcode == "convert":
            table = one.reads[0]
        return table._replace(n_bytes=share * table.n_bytes)

    def _second_half(self, at: Instruction, value: Value) -> Value | None:
        """Returns the result of a reduction that ends one which XLA began by windows; None: it is whole."""
        one = None if value.maker is None else self.operations[value.maker]
        if one is None or one.place is None or one.place[1].opcode != "reduce-window" or value.maker is None:
            return None
        self.operations[value.maker] = replace(one, written=at.n_bytes)
        return value._replace(n_bytes=at.n_bytes)

    def _lays_side_by_side(self, at: Instruction, given: Values) -> bool:
        """Whether a sum is one of arrays of which each has zeros where the other has none: gradients of slices."""
        parts = [self._part(value) for value in given]
        return (
            at.opcode == "add" and None not in parts and sum(part or 0.0 for part in parts) <= (1.0 + 1e-9) * at.n_bytes
        )

    def _part(self, value: Value) -> float | None:
        """Bytes of the parts of a value that lays parts side by side; None: it is no such value."""
        return None if value.maker is None else self._filled.get(value.maker)

    def links(self) -> list[Link]:
        """Kernel that each operation is part of, [operation]."""
        alive = self._alive()
        steps = list(self._steps(alive))
        return [link if alive[number] else Link(number, 0.0) for number, link in enumerate(links(steps))]

    def _alive(self) -> list[bool]:
        """Whether [operation] any reader needs its result."""
        alive = [one.role in (KERNEL, OTHER) for one in self.operations]
        for number in range(len(self.operations) - 1, -1, -1):
            if alive[number]:
                for value in self.operations[number].reads:
                    if value.maker is not None:
                        alive[value.maker] = True
        return alive

    def _steps(self, alive: Sequence[bool]) -> Iterator[ChainStep]:
        readers: list[dict[int, None]] = [{} for _ in self.operations]
        for number, one in enumerate(self.operations):
            for value in one.reads if alive[number] else ():
                if value.maker is not None and value.n_bytes > MINOR * self.operations[value.maker].written:
                    readers[value.maker][number] = None
        for number, one in enumerate(self.operations):
            if not alive[number]:
                yield ChainStep(OTHER, one.phase, loop=one.stretch)
                continue
            reads = tuple({value.access: None for value in one.reads})
            yield ChainStep(one.role, one.phase, reads, one.written, tuple(readers[number]), one.stretch)


class _Frame:
    """A fused computation that is being gone through."""

    def __init__(self, computation: Computation, given: Values, outer: tuple[Place, ...]) -> None:
        self.computation, self.given, self.outer = computation, given, outer
        self.rest = iter(computation.instructions.values())
        self.values: dict[str, Values] = {}

    def value(self, name: str) -> Value:
        made = self.values.get(name, ())
        return made[0] if made else outside((self.computation.name, name), self.computation.instructions[name].n_bytes)

    def result(self) -> Values:
        return self.values.get(self.computation.root, ())
