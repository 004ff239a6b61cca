"""The command `capture` and its registry: a front end is one object."""

from pathlib import Path

import pytest

from prism_jax import read_capture
from prism_jax.capture.front_end import FRONT_ENDS, CaptureRequest, FrontEnd
from prism_jax.shell.app import main
from prism_jax.workload.captured.program import RankProgram
from tests.support.captured.programs import program


def capture_toy(request: CaptureRequest) -> RankProgram:
    request.check_options({"depth": "layers"})
    return program(name=request.name or "toy")


TOY = FrontEnd("toy", "files that end in .toy", lambda request: request.path.endswith(".toy"), capture_toy)


def test_a_front_end_of_ones_own_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "out.capture.gz"
    with FRONT_ENDS.with_item(TOY):
        assert main(["capture", "model.toy:build", "--tp", "2", "--dp", "4", "-o", str(file)]) == 0
    assert "captured by toy" in capsys.readouterr().out
    assert read_capture(file) == program()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing.xyz"], "no front end knows what this is"),
        (["nothing.xyz"], "There is no such file"),
        (["llama2_7b_fsdp_64", "--tp", "2"], "an axis of the mesh (--tp, --dp, --axis, ...) cannot be stated for it"),
        (
            ["llama2_7b_fsdp_64", "--world", "128"],
            "--world cannot be stated for it. Degrees and batch are those of the job",
        ),
        (["model.toy", "--front-end", "tuy"], "unknown"),
        (["model.toy", "--option", "width=3"], "--option width: unknown here"),
        (["model.toy", "--option", "width"], "NAME=VALUE"),
        (["model.toy", "--axis", "tp=-4"], "whole number"),
        (["model.toy", "-o", "/no/such/folder/x"], "no folder"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    with FRONT_ENDS.with_item(TOY):
        assert main(["capture", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_capture_is_described_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "out.capture.gz"
    assert main(["capture", "llama2_7b_fsdp_64", "-o", str(file)]) == 0
    first = capsys.readouterr().out
    assert main(["capture", str(file)]) == 0
    assert first.splitlines()[1:4] == capsys.readouterr().out.splitlines()[1:4]
    assert main(["capture", str(file), "--fusion", "eager"]) == 2
    assert "--fusion cannot be stated for it. It is captured already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "path", "defined"),
    [("train.py:build", "train.py", "build"), ("train.py", "train.py", ""), ("C:\\x.py", "C:\\x.py", "")],
)
def test_a_source_is_a_file_and_what_it_defines(source: str, path: str, defined: str):
    request = CaptureRequest(source)
    assert (request.path, request.defined) == (path, defined)
