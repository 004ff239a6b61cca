"""Front ends by name, and jobs as captured programs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.capture.spec.run import axis_bytes, captured, overlap, products, stated
from prism_jax import load_job, read_capture
from prism_jax.capture.front_end import FRONT_ENDS, CaptureRequest, FrontEnd
from prism_jax.cost.step import step_cost
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
    assert "read by toy" in capsys.readouterr().out
    assert read_capture(file) == program()
    assert read_capture(file).assumptions == program().assumptions


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


# --- A job of ours, written down as a capture, costs what the job costs ----------------------------------------------


NARROW = ["cluster.n_devices=128", "plan.dp=auto", "plan.global_batch=64"]
PARTS = ("compute_s", "comm_s", "hidden_comm_s", "p2p_s", "end_compute_s", "end_comm_s")
JOBS = (("llama3_405b_8192", NARROW), ("bert_large_1024", []), ("vit_h_14_64", []))


@pytest.mark.parametrize(("name", "overrides"), JOBS)
def test_every_part_of_the_step_is_the_same(name: str, overrides: list[str]):
    job = stated(load_job(name, overrides))
    own = captured(job)
    before, after = (step_cost(one.model, one.cluster, one.plan, job.efficiency) for one in (job, own))
    for part in PARTS:
        np.testing.assert_allclose(getattr(after, part), getattr(before, part), rtol=1e-6, err_msg=part)


@pytest.mark.parametrize(("name", "overrides"), JOBS)
def test_products_and_bytes_are_the_same(name: str, overrides: list[str]):
    job = load_job(name, overrides)
    own = captured(job)
    assert overlap(products(job.model, job.plan), products(own.model, own.plan)) > 0.9999
    before, after = axis_bytes(job.model, job.plan), axis_bytes(own.model, own.plan)
    assert dict(after) == pytest.approx(dict(before), rel=1e-6)


def test_sharded_parameters_are_gathered_ahead_and_mostly_hidden():
    job = stated(load_job("llama2_7b_fsdp_64", ["plan.micro_batch=4", "plan.global_batch=256"]))
    own = captured(job)
    before, after = (step_cost(one.model, one.cluster, one.plan, job.efficiency) for one in (job, own))
    assert after.compute_s.sum() == pytest.approx(before.compute_s.sum(), rel=0.03)
    total = [cost.comm_s.sum() + cost.hidden_comm_s.sum() for cost in (before, after)]
    assert total[1] == pytest.approx(total[0], rel=1e-3)
    assert after.hidden_comm_s.sum() > 0.9 * total[1]


def test_memory_is_that_of_the_job():
    job = stated(load_job("vit_h_14_64"))
    own = captured(job)
    for part in ("parameters", "gradients", "optimizer"):
        assert own.memory.as_dict()[part] == pytest.approx(job.memory.as_dict()[part], rel=1e-6)
    assert replace(own, name="x").model == own.model
