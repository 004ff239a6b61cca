"""A front end of one's own: one object, no change of the package."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from prism_jax import load_job
from prism_jax.capture.front_end import FRONT_ENDS, CaptureRequest, FrontEnd
from prism_jax.shell.app import main
from prism_jax.workload.captured.program import CapturedComm, CapturedOp, RankClass, RankProgram


def _product(n: int, phase: str) -> CapturedOp:
    return CapturedOp("mm", "gemm", phase, "bf16", shape=(1, n, n, n), flops=2.0 * n**3, n_bytes=6.0 * n**2)


def capture_square(request: CaptureRequest) -> RankProgram:
    """One square product."""
    request.check_options({"width": "of the matrices"})
    n = int(request.options.get("width", 4096))
    products = (_product(n, phase) for phase in ("F", "B", "W"))
    rows = (*products, CapturedComm("all_reduce", "dp", request.n_ranks(), 1, 2.0 * n**2, "bf16", "W"))
    ranks = RankClass("all", request.n_ranks(), 0, rows, n_parameters=float(n**2))
    return RankProgram("square", request.n_ranks(), {"dp": request.n_ranks()}, (ranks,), 1, request.n_ranks())


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with FRONT_ENDS.with_item(
        FrontEnd("square", "files that end in .square", lambda r: r.path.endswith(".square"), capture_square)
    ):
        yield


def test_what_it_captures_is_a_job(tmp_path: Path):
    file = str(tmp_path / "square.capture.gz")
    assert main(["capture", "my.square", "--world", "64", "--option", "width=1024", "-o", file]) == 0
    job = load_job(file, ["cluster=dgx-h100"])
    assert (job.plan.dp, job.model.n_params()) == (64, 1024**2)
    assert main(["check", file, "--cluster", "dgx-h100", "--set", "plan.dp=8", "--set", "plan.global_batch=8"]) == 0


def test_it_says_which_options_it_has(capsys: pytest.CaptureFixture[str]):
    assert main(["capture", "my.square", "--option", "height=3"]) == 2
    assert "width: of the matrices" in capsys.readouterr().err
