"""Captures of a small PyTorch network against what its sizes say."""

from pathlib import Path

import pytest

from prism_jax import read_capture
from prism_jax.workload.captured.program import CapturedComm, RankClass, RankProgram

DATA = Path(__file__).parent / "data"
WIDTH, INNER, VOCABULARY, TOKENS, LAYERS = 64, 256, 96, 64, 4
LAYER = WIDTH * 3 * WIDTH + WIDTH * WIDTH + 2 * WIDTH * INNER  # weights of its products
HEAD = WIDTH * VOCABULARY
ATTENTION = 2.0 * 4 * 4 * 16 * 8.5 * 32  # batch, heads, queries, keys that a query sees, both widths
N_PARAMETERS = LAYERS * (LAYER + 2 * WIDTH) + 2 * HEAD
MESHES = ("dp8", "fsdp8", "tp4", "pp2")


def program(mesh: str) -> RankProgram:
    return read_capture(DATA / f"tiny-{mesh}.capture.gz")


def products(one: RankClass, phase: str) -> float:
    return sum(op.flops * n for op, n in one.ops if op.kind == "gemm" and op.phase == phase)


def exchanged(one: RankClass, collective: str, phase: str) -> float:
    return sum(comm.n_bytes * n for comm, n in one.comms if (comm.collective, comm.phase) == (collective, phase))


@pytest.mark.parametrize("mesh", MESHES)
def test_forward_flops_are_those_of_the_sizes(mesh: str) -> None:
    found = program(mesh)
    tp = found.degree("tp")
    total = sum(one.flops("F") for one in found.classes)
    assert total == LAYERS * (2.0 * TOKENS * LAYER + ATTENTION) / tp + 2.0 * TOKENS * HEAD


@pytest.mark.parametrize("mesh", MESHES)
def test_gradients_of_inputs_and_weights_take_as_many_flops_as_the_forward_pass(mesh: str) -> None:
    for one in program(mesh).classes:
        assert products(one, "F") == products(one, "B") == products(one, "W")


@pytest.mark.parametrize("mesh", MESHES)
def test_attention_backward_is_no_gradient_of_weights(mesh: str) -> None:
    for one in program(mesh).classes:
        assert {op.phase for op, _ in one.ops if op.kind == "attention"} == {"F", "B"}


@pytest.mark.parametrize("mesh", MESHES)
def test_what_waits_comes_later(mesh: str) -> None:
    for one in program(mesh).classes:
        for at, row in enumerate(one.rows):
            if isinstance(row, CapturedComm) and row.wait is not None:
                assert row.asynchronous
                assert at < row.wait < len(one.rows)


def test_data_parallel_ranks_reduce_every_gradient_once() -> None:
    (one,) = program("dp8").classes
    assert exchanged(one, "all_reduce", "B") == 2.0 * N_PARAMETERS


def test_sharded_parameters_are_gathered_and_their_gradients_scattered() -> None:
    (one,) = program("fsdp8").classes
    layers = 2.0 * LAYERS * (LAYER + 2 * WIDTH)
    assert exchanged(one, "all_gather", "F") == 2.0 * N_PARAMETERS
    assert exchanged(one, "all_gather", "B") == layers  # the root keeps its own
    assert exchanged(one, "reduce_scatter", "B") == 2.0 * N_PARAMETERS


def test_sharded_parameters_are_gathered_beside_the_layer_before() -> None:
    (one,) = program("fsdp8").classes
    gathers = [row for row, _ in one.comms if row.collective == "all_gather" and row.phase == "F"]
    assert [row.asynchronous for row in gathers] == [False] + [True] * LAYERS


def test_tensor_parallel_ranks_reduce_activations_twice_a_layer_each_way() -> None:
    (one,) = program("tp4").classes
    assert exchanged(one, "all_reduce", "F") == exchanged(one, "all_reduce", "B") == 2 * LAYERS * 2.0 * TOKENS * WIDTH


def test_stages_have_their_own_parts_and_hand_on_activations() -> None:
    first, last = program("pp2").classes
    assert (first.stage, last.stage) == (0, 1)
    assert (first.sends_bytes, last.sends_bytes) == (2.0 * TOKENS * WIDTH, 0.0)
    assert first.n_parameters + last.n_parameters == N_PARAMETERS


def test_layers_that_repeat_are_written_once() -> None:
    (one,) = program("tp4").classes
    assert [repeat.times for repeat in one.repeats] == [LAYERS, LAYERS]
