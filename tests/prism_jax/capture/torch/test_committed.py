"""Programs captured of PyTorch code, without PyTorch: committed captures, axes of a mesh, and folded repeats."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax import read_capture
from prism_jax.capture.front_end import CaptureRequest
from prism_jax.capture.torch.contract import CollectiveGroup, data_parallel_size, group_of, mesh_axes, rank_of_stage
from prism_jax.capture.torch.front_end import FRONT_END
from prism_jax.capture.torch.repeats import Folded, folded
from prism_jax.core.errors import DataError
from prism_jax.workload.captured.program import CapturedComm, CapturedOp, RankClass, RankProgram

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


# --- Order of mesh dimensions, what is left of the world, and which dimension a group of ranks runs along ------------


def test_what_the_axes_leave_is_data_parallel() -> None:
    assert mesh_axes({"tp": 8, "pp": 16}, 8192) == {"pp": 16, "dp": 64, "tp": 8}


def test_axes_that_do_not_fill_the_world_are_refused() -> None:
    with pytest.raises(DataError, match="Leave --dp out, or make it 8"):
        mesh_axes({"tp": 4, "dp": 4}, 32)


def test_groups_are_named_by_the_dimension_that_differs() -> None:
    axes = {"pp": 2, "dp": 4, "tp": 8}
    assert group_of(axes, range(8)) == CollectiveGroup("tp", 8, 1)
    assert group_of(axes, [3, 11, 19, 27]) == CollectiveGroup("dp", 4, 8)
    assert group_of(axes, [5, 37]) == CollectiveGroup("pp", 2, 32)


def test_stages_are_outermost() -> None:
    assert rank_of_stage({"pp": 2, "dp": 4, "tp": 8}, 1) == 32


def test_replicas_and_shards_both_divide_the_batch() -> None:
    assert data_parallel_size({"dp": 2, "fsdp": 8, "tp": 4}) == 16


def test_without_torch_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DataError, match=r"pip install 'prism-jax\[capture\]'"):
        FRONT_END.capture(CaptureRequest(str(tmp_path / "train.py")))


def test_a_file_that_imports_torch_is_recognised_without_running_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\nraise SystemExit(1)\n")
    assert FRONT_END.recognises(CaptureRequest(f"{file}:build"))


# --- Folding of repeated rows: nothing is lost, and what is awaited elsewhere is not folded --------------------------


OPS = [CapturedOp(f"op{i}", "memory", "F", "bf16", n_bytes=float(i)) for i in range(4)]
GATHER = CapturedComm("all_gather", "fsdp", 8, 1, 64.0, "bf16", "F", asynchronous=True)


def unfolded(found: Folded) -> list[str]:
    names: list[str] = []
    own = [row.name for row in found.rows if isinstance(row, CapturedOp)]
    assert len(own) == len(found.rows)
    at = 0
    for repeat in found.repeats:
        names += own[at : repeat.start]
        names += own[repeat.start : repeat.stop] * repeat.times
        at = repeat.stop
    return names + own[at:]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_unfolded_rows_are_the_rows(numbers: list[int]) -> None:
    rows = [OPS[i] for i in numbers]
    assert unfolded(folded(rows)) == [row.name for row in rows]


def test_layers_are_alike_whatever_their_number() -> None:
    rows = [replace(op, module=f"layers.{layer}.mlp") for layer in range(6) for op in OPS]
    found = folded(rows)
    assert [(repeat.start, repeat.stop, repeat.times) for repeat in found.repeats] == [(0, 4, 6)]


def test_what_another_repetition_waits_for_is_not_folded() -> None:
    rows = [row for layer in range(6) for row in (replace(GATHER, wait=5 * layer + 6), *OPS)][:-5]
    rows += OPS
    assert folded(rows).repeats == ()


def test_waits_move_with_their_rows() -> None:
    rows = [OPS[0]] * 20 + [replace(GATHER, wait=22), OPS[1], OPS[2]]
    found = folded(rows)
    (gather,) = [row for row in found.rows if isinstance(row, CapturedComm)]
    assert gather.wait is not None
    assert found.rows[gather.wait] == OPS[2]
