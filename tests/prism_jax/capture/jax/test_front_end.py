"""Steps in JAX, captured from their code: one is compiled for real, in a process of its own."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import jax
import pytest

from prism_jax.capture.front_end import CaptureRequest, front_end_for, load_function
from prism_jax.capture.hlo.parse import read_hlo
from prism_jax.capture.hlo.program import ProgramFacts, rank_program
from prism_jax.capture.jax import front_end as jax_front_end
from prism_jax.capture.jax.child import step_of
from prism_jax.core.errors import DataError
from prism_jax.shell.app import main
from prism_jax.workload.captured.fusion import fused
from prism_jax.workload.captured.program import RankProgram

DATA = Path(__file__).parents[3] / "data" / "hlo"
STEP = DATA / "mlp_step.py"


REQUEST = CaptureRequest(f"{STEP}:train_step", world=8)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Any]]:
    """The folder in which a process of its own has compiled the step, and what it said."""
    folder = tmp_path_factory.mktemp("compiled")
    return folder, jax_front_end._compiled(REQUEST, 8, folder)


@pytest.fixture
def compiled_once(compiled: tuple[Path, Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures read what was compiled before."""

    def again(request: CaptureRequest, n: int, folder: Path) -> Mapping[str, Any]:
        copytree(compiled[0], folder, dirs_exist_ok=True)
        return compiled[1]

    monkeypatch.setattr(jax_front_end, "_compiled", again)


def test_a_step_is_compiled_and_read(compiled_once: None):
    """What it computes and exchanges is what the text of the same step, which is kept in the repository, says."""
    front_end = front_end_for(REQUEST)
    assert front_end.name == "jax"
    program = front_end.capture(REQUEST)
    kept = rank_program(read_hlo(DATA / "mlp_fsdp2_tp4.txt"), ProgramFacts(axes={"fsdp": 2, "tp": 4}))
    assert (program.world, dict(program.axes)) == (8, {"fsdp": 2, "tp": 4})
    assert (program.samples_per_step, program.tokens_per_sample) == (4, 8)
    assert program.classes[0].n_parameters == 2 * 4 * 16 * 64 / 4
    assert program.fusion == "xla"
    for phase in ("F", "B", "W"):
        assert program.classes[0].flops(phase) == kept.classes[0].flops(phase)
    found, expected = _bytes(program), _bytes(kept)
    if jax.__version_info__ < (0, 11):  # another XLA reduces the gradients of both weights before it scatters them
        found, expected = (
            {key: one for key, one in each.items() if key[1] != "reduce_scatter"} for each in (found, expected)
        )
    assert found == expected


def test_a_fusion_policy_decides_which_kernels_there_are(compiled_once: None):
    """As XLA for GPUs has them, or chains by who reads what, which keep nothing that they can make again."""
    front_end = front_end_for(REQUEST)
    chains, eager = (front_end.capture(replace(REQUEST, fusion=fusion)) for fusion in ("fused", "eager"))
    assert (chains.fusion, eager.fusion) == ("fused", "eager")
    assert chains.classes == eager.classes
    moved = [sum(op.n_bytes * n for op, n in fused(one.classes[0], one.fusion).ops) for one in (chains, eager)]
    assert moved[0] < 0.6 * moved[1]


def _bytes(program: RankProgram) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for comm, n in program.classes[0].comms:
        key = comm.axis, comm.collective
        found[key] = found.get(key, 0.0) + comm.n_bytes * n
    return found


@pytest.mark.parametrize(
    ("defined", "told"),
    [
        ("raises", r"mlp_step.py:\d+: calling raises: ValueError: no such layer"),
        ("takes_arguments", "takes arguments, but is not jitted"),
        ("returns_a_number", "returns int, whose first element is no jitted function"),
        ("nothing", "does not define a function nothing"),
    ],
)
def test_what_cannot_be_captured_is_told(defined: str, told: str):
    with pytest.raises(DataError, match=told):
        step_of(STEP, defined, load_function(STEP, defined), None)


def test_a_jitted_function_needs_arguments_beside_it():
    step = load_function(STEP, "train_step")
    with pytest.raises(DataError, match="no example_args"):
        step_of(STEP, "train_step", step, None)


def test_mistakes_of_the_process_that_compiles_are_those_of_the_command(capsys: pytest.CaptureFixture[str]):
    assert main(["capture", f"{STEP}:raises", "--world", "4"]) == 2
    message = capsys.readouterr().err
    assert "calling raises: ValueError: no such layer" in message
    assert "Traceback" not in message


def test_devices_must_be_stated(capsys: pytest.CaptureFixture[str]):
    assert main(["capture", f"{STEP}:train_step"]) == 2
    assert "say how many devices" in capsys.readouterr().err


def test_kernels_are_those_of_the_text_or_those_that_one_asks_for():
    text = str(DATA / "mlp_fsdp2_tp4.txt")
    hlo = front_end_for(CaptureRequest(text))
    written, asked = (
        hlo.capture(CaptureRequest(text, axes={"fsdp": 2, "tp": 4}, options=options)).classes[0]
        for options in ({}, {"kernels": "xla"})
    )
    assert written.flops() == asked.flops()
    assert sum(op.n_bytes for op, _ in written.ops) != sum(op.n_bytes for op, _ in asked.ops)
    with pytest.raises(DataError, match="not one of text, xla, chains"):
        hlo.capture(CaptureRequest(text, options={"kernels": "gpu"}))
