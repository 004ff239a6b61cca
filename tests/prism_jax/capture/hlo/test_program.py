"""Captured programs of HLO text: loops, asynchronous collectives, and a step that JAX compiled."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from prism_jax.capture.hlo.parse import is_hlo, read_hlo
from prism_jax.capture.hlo.program import ProgramFacts, rank_program
from prism_jax.workload.captured.program import CapturedComm, RankProgram
from tests.prism_jax.capture.hlo.texts import ENTRY_OF_LOOP, GPU, LOOP, module

DATA = Path(__file__).parents[3] / "data" / "hlo"
LAYERS, WIDTH, INNER, ROWS = 4, 16, 64, 2 * 8  # of tests/data/hlo/mlp_step.py; rows of a device
FSDP, TP = 2, 4
GROUPS = {"fsdp": (2, 4), "tp": (4, 1)}  # members and the distance between them


@pytest.fixture(scope="module")
def step() -> RankProgram:
    return rank_program(read_hlo(DATA / "mlp_fsdp2_tp4.txt"), ProgramFacts(axes={"fsdp": FSDP, "tp": TP}))


def test_a_counter_tells_the_trips_of_a_loop():
    program = rank_program(module(ENTRY_OF_LOOP, LOOP))
    (op, n), *rest = [(op, n) for op, n in program.classes[0].ops if op.kind == "gemm"]
    assert (op.shape, n, rest) == ((1, 4, 8, 8), 5, [])


def test_a_loop_that_nobody_counts_is_named():
    program = rank_program(module(ENTRY_OF_LOOP, LOOP.replace("constant(17)", "parameter(1)")))
    assert any("loops whose number of trips" in note for note in program.assumptions)
    assert sum(op.flops * n for op, n in program.classes[0].ops) == 2.0 * 4 * 8 * 8


def test_what_stands_between_start_and_end_runs_beside_a_collective():
    one = rank_program(module(GPU)).classes[0]
    ((comm, _),), ((product, _), (after, _)) = one.comms, one.ops
    assert one.rows == (comm, product, after)
    assert (comm.asynchronous, comm.wait, comm.ranks, comm.n_bytes) == (True, 2, 4, 4 * 8 * 4.0)
    assert (product.kind, product.shape) == ("gemm", (1, 4, 8, 8))
    assert after.kind == "memory"
    assert after.n_bytes == 3 * 4 * 8 * 4.0


WRAPPED = """%wrapped (q: f32[4,8]) -> f32[2,8] {
  %q = f32[4,8]{1,0} parameter(0)
  ROOT %rs = f32[2,8]{1,0} reduce-scatter(%q), channel_id=1, replica_groups=[4,2]<=[8], dimensions={0}, to_apply=%sum
}
"""
STARTED = """  %p = f32[4,8]{1,0} parameter(0)
  %s = ((f32[4,8]{1,0}), f32[2,8]{1,0}) async-start(%p), calls=%wrapped
  %x = f32[4,8]{1,0} negate(%p)
  %u = ((f32[4,8]{1,0}), f32[2,8]{1,0}) async-update(%s)
  %d = f32[2,8]{1,0} async-done(%u)
  ROOT %y = f32[2,8]{1,0} negate(%d)"""


def test_a_collective_in_an_asynchronous_computation_is_waited_for_at_its_end():
    one = rank_program(module(STARTED, WRAPPED)).classes[0]
    ((comm, _),), ((beside, _), (after, _)) = one.comms, one.ops
    assert one.rows == (comm, beside, after)
    assert (comm.collective, comm.asynchronous, comm.wait) == ("reduce_scatter", True, 2)
    assert comm.n_bytes == 4 * 8 * 4.0  # before it is scattered
    assert (beside.name, after.name) == ("negate", "negate")


SLICED = """%sliced (q: bf16[4,8], i: s32[]) -> bf16[2,8] {
  %q = bf16[4,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %all = bf16[4,8]{1,0} all-reduce(%q), channel_id=1, replica_groups=[4,2]<=[8], to_apply=%sum
  ROOT %part = bf16[2,8]{1,0} dynamic-slice(%all, %i, %zero), dynamic_slice_sizes={2,8}
}
"""
FUSED = """  %p = bf16[4,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %f = bf16[2,8]{1,0} fusion(%p, %i), kind=kCustom, calls=%sliced"""


def test_a_sum_of_which_a_slice_is_kept_is_a_reduce_scatter():
    """As XLA for TPUs fuses them."""
    one = rank_program(module(FUSED, SLICED)).classes[0]
    ((comm, _),) = one.comms
    assert one.rows == (comm,)
    assert (comm.collective, comm.ranks, comm.n_bytes, comm.dtype) == ("reduce_scatter", 2, 4 * 8 * 2.0, "bf16")


def test_a_sum_that_is_also_read_whole_stays_one():
    body = """  %p = f32[4,8]{1,0} parameter(0)
  %i = s32[] constant(0)
  %all = f32[4,8]{1,0} all-reduce(%p), channel_id=1, replica_groups=[4,2]<=[8], to_apply=%sum
  %part = f32[2,8]{1,0} dynamic-slice(%all, %i, %i), dynamic_slice_sizes={2,8}
  ROOT %both = (f32[4,8]{1,0}, f32[2,8]{1,0}) tuple(%all, %part)"""
    ((comm, _),) = rank_program(module(body)).classes[0].comms
    assert comm.collective == "all_reduce"


def test_flops_of_a_step_are_those_of_the_closed_form(step: RankProgram):
    product = 2.0 * ROWS * WIDTH * INNER / TP
    one = step.classes[0]
    assert one.flops("F") == LAYERS * 2 * product
    assert one.flops("W") == LAYERS * 2 * product
    assert one.flops("B") == LAYERS * 3 * product  # one of them again: the input of the second product
    assert any("14.3% of the FLOPs repeat" in note for note in step.assumptions)


def test_products_have_the_sizes_of_the_layers(step: RankProgram):
    found = Counter()
    for op, n in step.classes[0].ops:
        if op.kind == "gemm":
            found[tuple(sorted(op.shape[1:]))] += n
    assert found == {(WIDTH, INNER // TP, ROWS): LAYERS * 7}


def test_bytes_along_an_axis_are_those_of_weights_and_activations(step: RankProgram):
    weights = LAYERS * 2 * WIDTH * INNER / TP * 2.0
    activations = LAYERS * ROWS * WIDTH * 2.0
    found: dict[tuple[str, str], float] = defaultdict(float)
    for comm, n in step.classes[0].comms:
        if comm.n_bytes > 4:
            found[comm.axis, comm.collective] += comm.n_bytes * n
            assert (comm.dtype, comm.ranks, comm.stride) == (
                "bf16",
                FSDP if comm.axis == "fsdp" else TP,
                4 if comm.axis == "fsdp" else 1,
            )
    assert found == {
        ("fsdp", "all_gather"): 2 * weights,
        ("fsdp", "reduce_scatter"): weights,
        ("tp", "all_reduce"): 2 * activations,
    }


def test_layers_are_repeats(step: RankProgram):
    assert [repeat.times for repeat in step.classes[0].repeats] == [LAYERS, LAYERS]


def test_the_largest_module_of_a_folder_is_taken(tmp_path: Path):
    whole = (DATA / "mlp_fsdp2_tp4.txt").read_text()
    (tmp_path / "module_0001.jit_step.cpu_after_optimizations.txt").write_text(whole)
    (tmp_path / "module_0000.jit_f.cpu_after_optimizations.txt").write_text("HloModule f")
    (tmp_path / "module_0001.jit_step.cpu_after_optimizations-buffer-assignment.txt").write_text("x" * len(whole) * 2)
    assert is_hlo(tmp_path)
    assert read_hlo(tmp_path).name == "jit_train_step"
    assert not is_hlo(DATA)


def _gathers(sizes: tuple[int, ...], line: str = "") -> list[CapturedComm]:
    """Gatherings of arguments of so many rows, and what else a line gathers."""
    rows = [
        f"  %p{n} = f32[{size},1024]{{1,0}} parameter({n})\n"
        f"  %g{n} = f32[{8 * size},1024]{{1,0}} all-gather(%p{n}), channel_id={n + 1}, replica_groups=[1,8]<=[8], "
        'dimensions={0}, metadata={op_name="jit(step)/jvp()/w"}'
        for n, size in enumerate(sizes)
    ]
    body = "\n".join([*rows, line, "  ROOT %r = f32[8,1024]{1,0} negate(%p0)"])
    program = rank_program(module(body), ProgramFacts(axes={"fsdp": 8}, kernels="chains"))
    return [comm for comm, _ in program.classes[0].comms]


def test_parameters_are_gathered_together_up_to_thirty_mebibytes():
    """As XLA for GPUs combines them: 8 rows of 1024 numbers of 4 bytes from each of 8 ranks are a quarter of a mebibyte."""
    assert [comm.n_bytes / 2**20 for comm in _gathers((8, 16, 32))] == [0.25 + 0.5 + 1.0]
    assert [comm.n_bytes / 2**20 for comm in _gathers((512, 512, 8))] == [16.0, 16.25]


def test_what_a_pass_computes_is_gathered_by_itself_and_is_no_parameter():
    name = 'metadata={op_name="jit(step)/jvp()/d"}'
    line = f"""  %d = f32[8,8]{{1,0}} dot(%p0, %p0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}, {name}
  %g = f32[64,8]{{1,0}} all-gather(%d), channel_id=9, replica_groups=[1,8]<=[8], dimensions={{0}}, {name}"""
    found = _gathers((8, 8), line)
    assert [(comm.purpose, comm.n_bytes) for comm in found] == [
        ("", 2 * 64 * 1024 * 4.0),
        ("activations", 64 * 8 * 4.0),
    ]


def test_numbers_of_tokens_are_no_parameters():
    body = """  %p = s32[8,16]{1,0} parameter(0)
  ROOT %g = s32[64,16]{1,0} all-gather(%p), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}"""
    ((comm, _),) = rank_program(module(body), ProgramFacts(axes={"dp": 8})).classes[0].comms
    assert comm.purpose == "activations"


def test_what_a_library_works_in_is_no_traffic():
    _, product, _ = rank_program(module(GPU)).classes[0].rows
    assert product.n_bytes == (4 * 8 + 8 * 8 + 4 * 8) * 4.0


def test_parameters_are_the_arguments_that_a_step_returns(step: RankProgram):
    """Of the text alone: what a rank computes with, gathered over fsdp; not the samples."""
    assert step.classes[0].n_parameters == LAYERS * 2 * WIDTH * INNER / TP
