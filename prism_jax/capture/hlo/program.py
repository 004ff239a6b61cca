"""HLO -> `RankProgram`: operations of one device; all devices run the same program (SPMD)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from ...workload.captured.chains import FEEDS
from ...workload.captured.check import check_program, gathers_parameters
from ...workload.captured.fusion import fused
from ...workload.captured.program import CapturedComm, CapturedOp, CapturedRow, RankClass, RankProgram, Repeat
from .collectives import PREFIX, HloCollective, Routing, base_opcode, exchanges_of, exchanging
from .flattened import Flattened, Operation
from .groups import Groups, MeshAxes, guessed_axes, known_axes
from .moves import Place, Weights, is_widening, layer_key
from .products import MOST_MODULE, is_again, layer_of, named, product_of
from .rows import FoundProduct, ProgramTally, is_work, memory_op, notes_of, ops_of, product_op, products_in
from .types import Instruction, Module
from .walk import ModuleWalk, Visit

_NUMBER_BYTES = 8.0
MOST_BYTES = (
    30.0 * 2**20
)  # of a combined gathering: xla_gpu_all_gather_combine_threshold_bytes, xla/debug_options_flags.cc


@dataclass(frozen=True)
class ProgramFacts:
    """Facts that the text of a program does not state.

    Attributes:
        axes: dimensions of the mesh, outermost first; empty: guessed from the groups.
        samples_per_step: of the whole job; 0: one for every data-parallel rank.
        tokens_per_sample: 0 where samples are no sequences.
        n_parameters: with which a device computes, before they are divided over data-parallel ranks; 0: not known.
        source: jax or hlo.
        versions: of the software.
        assumptions: made by the caller.
        kernels: which kernels run its operations: those of the text where it is empty; `xla`: those that XLA has for GPUs;
            `chains`: as `fused` and `eager` say, see `workload/captured/fusion`.
    """

    axes: Mapping[str, int] = field(default_factory=dict)
    samples_per_step: int = 0
    tokens_per_sample: int = 0
    n_parameters: float = 0.0
    source: str = "hlo"
    versions: Mapping[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    kernels: str = ""


@dataclass
class _Rows:
    """Rows as they are made.

    Attributes:
        times, loops: [row] how often each runs, and the number of the loop that it is in.
        exchanges: row -> its collective.
        started: computation and name of what was started -> its rows.
        waits: row -> the row that waits for it.
        layers: products of the forward pass that read weights, see `gradients`.
        weightless: row -> product of the backward pass that reads none.
        flat: operations that fusions are taken apart into; None: fusions stay.
        operations: row -> number of its operation.
        gathered: loop, phase and groups -> the latest gathering of what there was before.
        routing: facts by which layers with experts are found.
        arguments: of the program, that are read before the optimizer.
    """

    rows: list[CapturedRow] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    loops: list[int] = field(default_factory=list)
    exchanges: dict[int, HloCollective] = field(default_factory=dict)
    started: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    layers: set[str] = field(default_factory=set)
    weightless: dict[int, str] = field(default_factory=dict)
    flat: Flattened | None = None
    operations: dict[int, int] = field(default_factory=dict)
    gathered: dict[tuple[object, ...], int] = field(default_factory=dict)
    routing: Routing = field(default_factory=Routing)
    arguments: dict[str, Instruction] = field(default_factory=dict)

    def add(self, row: CapturedRow, visit: Visit) -> int:
        self.rows.append(row)
        self.times.append(visit.times)
        self.loops.append(visit.loop)
        return len(self.rows) - 1


def rank_program(module: Module, stated: ProgramFacts | None = None) -> RankProgram:
    """The program of one device of a partitioned module, for all of its devices.

    Raises:
        DataError: what it does cannot be read, or is beyond bounds; names the line.
        SpecError: `stated` does not fit it.
    """
    stated = stated or ProgramFacts()
    flat = Flattened(module, through_loops=stated.kernels == "chains") if stated.kernels else None
    walk, made, tally, weights = ModuleWalk(module), _Rows(flat=flat), ProgramTally(), Weights(module)
    for visit in walk.visits():
        _visit(module, visit, made, tally, weights)
    found = (one.groups for one in made.exchanges.values())
    axes = known_axes(stated.axes, found) if stated.axes else guessed_axes(_found(made))
    repeats, counts = _repeats(made, walk)
    experts = made.routing.expert_loops()
    tally.expert_loops = len(experts)
    rows = tuple(_settled(made, index, axes, counts[index], experts) for index in range(len(made.rows)))
    rows = _linked(rows, made)
    one = RankClass("device", module.n_devices, 0, rows, repeats, n_parameters=stated.n_parameters)
    one = fused(one, "fused") if stated.kernels == "xla" else one
    program = RankProgram(
        name=module.name,
        world=module.n_devices,
        axes=axes.sizes,
        classes=(one,),
        micro_batches=1,
        samples_per_step=max(stated.samples_per_step, 1),
        tokens_per_sample=stated.tokens_per_sample,
        fusion="fused" if stated.kernels == "chains" else "xla",
        source=stated.source,
        versions=stated.versions,
        assumptions=(*stated.assumptions, *notes_of(module, walk, tally, axes)),
        roles=axes.guessed,
    )
    if not stated.n_parameters and (n := _parameters(module, made)):
        whole = n * (program.degree("dp") if gathers_parameters(program) else 1)
        program = replace(program, classes=(replace(one, n_parameters=whole),))
    if not stated.samples_per_step:
        program = replace(program, samples_per_step=program.degree("dp"))
    return check_program(program)


def _visit(module: Module, visit: Visit, made: _Rows, tally: ProgramTally, weights: Weights) -> None:
    instruction = visit.instruction
    made.routing.note(visit.loop, instruction.op_name, visit.phase)
    _note_arguments(module, visit, made)
    if instruction.opcode.endswith(("-done", "-update")):
        _ended(visit, made)
        return
    places = list(exchanging(module, visit.computation, instruction))
    for place in places:
        _exchanged(module, visit, place, made, tally)
    if made.flat is not None and not _is_flat(visit, made.flat, bool(places)):
        _operated(module, visit, made, tally, weights)
        return
    if base_opcode(instruction) or not is_work(instruction) or is_widening(module, visit.computation, instruction):
        return
    _note_products(module, visit, made, weights)
    for op in ops_of(module, visit, tally):
        if places and op.kind == "memory":
            continue  # a collective that is fused with the slice of its result
        made.add(op, visit)
        _count(module, instruction, op, visit, tally)


def _note_arguments(module: Module, visit: Visit, made: _Rows) -> None:
    computation = visit.computation
    is_early = computation.name == module.entry and visit.phase != "opt" and visit.instruction.name != computation.root
    for name in visit.instruction.operands if is_early else ():
        if computation.instructions[name].opcode == "parameter":
            made.arguments[name] = computation.instructions[name]


def _parameters(module: Module, made: _Rows) -> float:
    """Elements of the arguments that the passes read and that come back in the same shape: a step returns the parameters it
    trains.
    """
    entry = module.computations[module.entry]
    returned = set(entry.instructions[entry.root].shapes)
    shapes = [one.shapes[0] for one in made.arguments.values() if len(one.shapes) == 1]
    return float(sum(one.n_elements for one in shapes if one in returned and one.is_float))


def _is_flat(visit: Visit, flat: Flattened, is_exchange: bool) -> bool:
    """Whether an instruction is dealt with as it is; notes its inputs where operations before it made them."""
    if visit.instruction.opcode == "tuple":
        flat.hand_on(visit)
    elif is_exchange or visit.phase == "opt":
        flat.hand_out(visit)
    return is_exchange or visit.phase == "opt" or not is_work(visit.instruction)


def _operated(module: Module, visit: Visit, made: _Rows, tally: ProgramTally, weights: Weights) -> None:
    """Rows of the operations that an instruction is taken apart into."""
    assert made.flat is not None
    layer = layer_of(named(module, visit.instruction))
    for number in made.flat.see(visit):
        operation = made.flat.operations[number]
        if operation.place is None:
            continue  # it only stands for a reader
        row = _row_of(module, operation, operation.place, layer)
        if row.kind in ("gemm", "conv"):
            _note_product(module, visit, made, weights, len(made.rows), operation.place, operation.outer)
        made.operations[made.add(row, visit)] = number
        _count(module, operation.place[1], row, visit, tally)


def _row_of(module: Module, one: Operation, place: Place, layer: str) -> CapturedOp:
    """The row of an operation: a product by its sizes, all else by the bytes that it moves; `layer`: where no name tells."""
    computation, at = place
    layer, again, product = layer_of(named(module, at)) or layer, is_again(module, at), product_of(module, *place)
    if product is None:
        is_fusible = one.role in FEEDS
        return memory_op(at, one.phase, one.n_bytes, one.written, layer, again=again, fusible=is_fusible)
    found = FoundProduct(product, computation, at, one.outer)
    return product_op(module, found, one.phase, one.n_bytes, one.written, layer, again=again)


def _count(module: Module, instruction: Instruction, op: CapturedOp, visit: Visit, tally: ProgramTally) -> None:
    flops = op.flops * visit.times
    tally.flops += flops
    tally.again_flops += flops if is_again(module, instruction) else 0.0
    tally.backward += visit.phase != "F"


def _linked(rows: tuple[CapturedRow, ...], made: _Rows) -> tuple[CapturedRow, ...]:
    """Rows with the kernels that they are part of."""
    if made.flat is None:
        return rows
    links = made.flat.links()
    place = {number: index for index, number in made.operations.items()}
    found = list(rows)
    for index, number in made.operations.items():
        row, link, own = found[index], links[number], made.flat.operations[number]
        if isinstance(row, CapturedOp) and link.end in place:
            chain = {"chain": place[link.end] - index, "chain_bytes": link.n_bytes}
            found[index] = replace(row, n_bytes=own.n_bytes, output_bytes=own.written, **chain)
    return tuple(found)


def _ended(visit: Visit, made: _Rows) -> None:
    """The end of an operation started before, or a step on the way there."""
    instruction, name = visit.instruction, visit.computation.name
    for operand in instruction.operands:
        rows = made.started.pop((name, operand), [])
        if instruction.opcode.endswith("-update"):
            made.started[name, instruction.name] = rows
        else:
            made.waits.update(dict.fromkeys(rows, len(made.rows)))


def _note_products(module: Module, visit: Visit, made: _Rows, weights: Weights) -> None:
    """Whether the products of an instruction read weights; see `gradients`."""
    for number, one in enumerate(products_in(module, visit.computation, visit.instruction)):
        place = one.computation, one.instruction
        _note_product(module, visit, made, weights, len(made.rows) + number, place, one.outer)


def _note_product(
    module: Module, visit: Visit, made: _Rows, weights: Weights, row: int, place: Place, outer: tuple[Place, ...]
) -> None:
    instruction = place[1]
    key, reads = layer_key(instruction.op_name), weights.are_read_by(*place, outer)
    made.routing.products.setdefault(visit.loop, set()).add(key)
    if visit.phase == "F" and reads:
        made.layers.add(key)
    elif visit.phase == "B" and not reads and not is_again(module, instruction):
        made.weightless[row] = key


def _exchanged(module: Module, visit: Visit, place: Place, made: _Rows, tally: ProgramTally) -> None:
    computation, instruction = place
    is_started = instruction.opcode.endswith("-start") or visit.started is not None
    layer = layer_of(named(module, instruction))
    for exchange in exchanges_of(module, computation, instruction):
        tally.from_all_reduce += exchange.made_of_all_reduce
        tally.widened += exchange.n_bytes < exchange.widened_bytes
        tally.asynchronous += is_started
        groups = exchange.groups
        row = CapturedComm(
            exchange.kind, "?", groups.size, groups.stride, exchange.n_bytes, exchange.dtype, visit.phase, layer,
            asynchronous=is_started, purpose=_purpose(visit, exchange, made),
        )  # fmt: skip
        if (before := _combined(visit, row, exchange, made)) is not None:
            made.rows[before] = replace(row, n_bytes=made.rows[before].n_bytes + row.n_bytes)
            tally.combined += 1
            continue
        index = made.add(row, visit)
        made.exchanges[index] = exchange
        if is_started:
            made.started.setdefault(visit.started or (computation.name, instruction.name), []).append(index)


def _purpose(visit: Visit, exchange: HloCollective, made: _Rows) -> str:
    """Returns "activations" for gathered data that are surely no parameters: whole numbers, or computed by the pass; else an
    empty text.
    """
    is_computed = made.flat is not None and not made.flat.is_early(visit)
    is_sure = exchange.dtype.startswith("int") or is_computed
    return "activations" if exchange.kind == "all_gather" and is_sure else ""


def _combined(visit: Visit, row: CapturedComm, exchange: HloCollective, made: _Rows) -> int | None:
    """Index of the gathering that this one becomes part of; None: its own.

    Gatherings of the same groups, in the same loop, that wait for nothing between them are one, as XLA for GPUs makes them; XLA
    for CPUs leaves each parameter's apart.
    """
    if made.flat is None or exchange.kind != "all_gather" or row.asynchronous or row.purpose:
        return None
    key = visit.loop, visit.phase, visit.times, exchange.groups.members.tobytes()
    index = made.gathered.get(key)
    before = None if index is None else made.rows[index]
    if isinstance(before, CapturedComm) and before.n_bytes + row.n_bytes <= MOST_BYTES and before.dtype == row.dtype:
        return index
    made.gathered[key] = len(made.rows)
    return None


def _found(made: _Rows) -> Iterator[tuple[Groups, bool]]:
    """Groups of all collectives, and whether they sum activations."""
    for index, exchange in made.exchanges.items():
        is_sum = exchange.kind in ("all_reduce", "reduce_scatter") and made.rows[index].phase == "F"
        yield exchange.groups, is_sum and exchange.n_bytes > _NUMBER_BYTES


def _repeats(made: _Rows, walk: ModuleWalk) -> tuple[tuple[Repeat, ...], list[int]]:
    """Innermost loops as repeats of their rows; rows that run several times elsewhere have a count."""
    counts, repeats, start = list(made.times), [], 0
    for index in range(1, len(made.rows) + 1):
        if index < len(made.rows) and made.loops[index] == made.loops[start]:
            continue
        loop, times = made.loops[start], made.times[start]
        if loop and loop not in walk.nested and times > 1:
            repeats.append(Repeat(start, index, times))
            counts[start:index] = [1] * (index - start)
        start = index
    return tuple(repeats), counts


def _settled(made: _Rows, index: int, axes: MeshAxes, count: int, experts: Set[int]) -> CapturedRow:
    """A row with its axis, its count and the row that waits for it."""
    row = made.rows[index]
    if made.loops[index] in experts:
        row = replace(row, module=f"{PREFIX}/{row.module}"[:MOST_MODULE])
    if isinstance(row, CapturedOp):
        phase = "W" if made.weightless.get(index) in made.layers else row.phase
        return replace(row, count=count, phase=phase)
    wait = made.waits.get(index)
    wait = wait if wait is not None and index < wait < len(made.rows) else None
    return replace(row, axis=axes.along(made.exchanges[index].groups), count=count, wait=wait)
