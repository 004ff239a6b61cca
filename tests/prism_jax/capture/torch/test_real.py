"""Captures made here, where PyTorch is installed; they are those that the other tests read.

Write them again: `PRISM_WRITE_CAPTURES=1 pytest tests/prism_jax/capture/torch/test_real.py`.
"""

import os
from pathlib import Path

import pytest

from prism_jax import read_capture, write_capture
from prism_jax.capture.front_end import CaptureRequest
from prism_jax.capture.torch.front_end import FRONT_END
from prism_jax.core.errors import DataError

pytest.importorskip("torch", reason="captures of PyTorch code need torch")
pytestmark = pytest.mark.filterwarnings("default")
DATA = Path(__file__).parent / "data"
MESHES = {"dp8": {"dp": 8}, "fsdp8": {"fsdp": 8}, "tp4": {"tp": 4}, "pp2": {"pp": 2}}


def captured(name: str, **axes: int):
    return FRONT_END.capture(CaptureRequest(f"{DATA}/tiny.py:{name}", axes=axes, name="tiny"))


@pytest.mark.parametrize("mesh", MESHES)
def test_a_capture_is_the_one_that_the_other_tests_read(mesh: str) -> None:
    found, file = captured("build", **MESHES[mesh]), DATA / f"tiny-{mesh}.capture.gz"
    if os.environ.get("PRISM_WRITE_CAPTURES"):
        write_capture(file, found)
    kept = read_capture(file)
    assert found.axes == kept.axes
    for one, other in zip(found.classes, kept.classes, strict=True):
        assert (one.flops("F"), one.flops("B"), one.flops("W")) == (
            other.flops("F"),
            other.flops("B"),
            other.flops("W"),
        )
        sent = [[(row.axis, row.collective, row.n_bytes * n) for row, n in each.comms] for each in (one, other)]
        assert sent[0] == sent[1]


def test_every_expert_gets_as_many_tokens_as_any_other() -> None:
    (one,) = captured("routed").classes
    rows = [
        op.shape
        for op, n in one.ops
        if op.kind == "gemm" and op.phase == "F" and "experts" in op.module
        for _ in range(n)
    ]
    assert rows == [(1, 32, 64, 64)] * 4


def test_an_assumption_about_routing_is_stated() -> None:
    assert any("Routing is even" in text for text in captured("routed").assumptions)


@pytest.mark.parametrize(
    ("name", "axes", "words"),
    [
        ("data_decides", {}, r"tiny\.py:\d+.*the value of a tensor decides"),
        ("wrong", {}, "returned a Linear, but must return"),
        ("raises", {}, r"tiny\.py:\d+: building the model: KeyError: 'no such setting'"),
        ("not_parallel", {"tp": 4}, "nothing is exchanged over tp=4"),
        ("wrong", {"pp": 2}, "never asked for layout.stage"),
        ("nothing_here", {}, "does not define a function nothing_here"),
    ],
)
def test_a_mistake_in_user_code_is_told_with_its_place(name: str, axes: dict[str, int], words: str) -> None:
    with pytest.raises(DataError, match=words):
        captured(name, **axes)
