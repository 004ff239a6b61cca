"""A distribution family of a caller, in this one file: a shifted exponential, whose quantiles are known in closed form."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import SpecError
from prism_jax.job.load_job import load_job
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.shell.app import main
from prism_jax.simulate.predict import brute_force, predict, symmetric
from prism_jax.simulate.program import Program, lower
from prism_jax.variability.config import variability_from_dict, variability_to_dict
from prism_jax.variability.families import CONSTANT, Family, check_in_range, check_scale
from prism_jax.variability.family_registry import FAMILIES, family_from_dict, family_to_dict
from prism_jax.variability.tree import Variability
from tests.support.jobs import compute_varies, make_program
from tests.support.recipes import printed

PROBS = (0.05, 0.5, 0.95, 0.99)


@dataclass(frozen=True)
class ShiftedExponential:
    """`1 - cv + cv E` with E exponential of mean one: never faster than a bound, with an exponential tail.

    Attributes:
        cv: standard deviation over mean, 0 to 0.9.
    """

    kind: ClassVar[str] = "shifted_exponential"
    is_normal: ClassVar[bool] = False

    cv: float

    def __post_init__(self) -> None:
        check_in_range(self, "cv", 0.0, 0.9, remedy="Use log_normal for a wider spread")

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`: -log(1 - Phi(z)) = -log_ndtr(-z), accurate in both tails."""
        return 1.0 - self.cv - self.cv * log_ndtr(-np.asarray(z, dtype=np.float64))

    def scaled(self, k: float) -> Family:
        """Shifted exponential with its cv times `k`; constant at zero."""
        check_scale(k)
        return ShiftedExponential(self.cv * k) if self.cv * k > 0.0 else CONSTANT

    def quantile(self, p: float) -> float:
        """Factor at probability `p`."""
        return 1.0 - self.cv - self.cv * math.log1p(-p)


JOB = """
model: llama-3.2-1b
cluster: {preset: llama3-h100, n_devices: 16}
plan: {tp: 2, pp: 2, dp: 4, micro_batch: 1, global_batch: 16, seq_len: 2048}
variability: {preset: none, %s}
"""
SPACE = "{tp: [1, 2], pp: [1, 2], cp: 1, micro_batch: 1, schedule: 1f1b, recompute: none, zero_stage: [1], overlap_tp: false}"
STEP_VARIES = "step: {kind: shifted_exponential, cv: 0.1}"
ALL_VARY = "gemm: {gpu: {kind: shifted_exponential, cv: 0.05}, call: {kind: shifted_exponential, cv: 0.1}}"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with FAMILIES.with_item(ShiftedExponential):
        yield


def job_file(folder: Path, varies: str) -> str:
    path = folder / "job.yaml"
    path.write_text(JOB % varies)
    return str(path)


def test_sections_describe_it_and_back():
    family = family_from_dict({"kind": "shifted_exponential", "cv": 0.05})
    assert family == ShiftedExponential(0.05)
    assert family_from_dict(family_to_dict(family)) == family
    tree = variability_from_dict({"gemm": {"gpu": {"kind": "shifted_exponential", "cv": 0.05}}})
    again = variability_from_dict(variability_to_dict(tree))
    assert again == tree
    assert tree.scaled(2.0).of("gemm").gpu == ShiftedExponential(0.1)


def test_mistakes_name_its_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SpecError, match="unknown field of shifted_exponential; known are cv"):
        family_from_dict({"kind": "shifted_exponential", "cw": 0.05})
    assert main(["check", job_file(tmp_path, "gemm: {gpu: {kind: shifted_exponential, cv: 7}}")]) == 2
    assert "must be >= 0 and <= 0.9" in capsys.readouterr().err


def test_it_is_unknown_outside():
    family = type("Other", (ShiftedExponential,), {"kind": "other"})(0.1)
    with pytest.raises(SpecError, match="Other is not a registered family"):
        family_to_dict(family)


def test_step_quantiles_are_the_closed_form(tmp_path: Path):
    """Only the step factor varies: the step time is the noise-free one times the factor."""
    job = load_job(job_file(tmp_path, STEP_VARIES))
    quiet = predict(load_job(job_file(tmp_path, "step_ar1: 0.0")), key=jax.random.key(0)).quantile(0.5)
    found = predict(job, key=jax.random.key(0), n_samples=2048)
    for p in PROBS:
        assert found.quantile(p) / quiet == pytest.approx(ShiftedExponential(0.1).quantile(p), rel=4e-3)


def slowest_of(n: int, cv: float) -> Program:
    """`n` replicas of one GPU each, nothing but compute: the step is that of the slowest."""
    varies = Variability("t", compute_varies(gpu=ShiftedExponential(cv)))
    return make_program(varies, tp=1, pp=1, dp=n, tp_comm_s=0.0, p2p_s=0.0, end_comm_s=0.0)


def test_slowest_gpu_is_the_closed_form():
    """P(step <= t) = F(t)^n, so the quantile of the slowest of n is that of one at p^(1/n)."""
    n, cv = 16, 0.05
    quiet = symmetric(slowest_of(n, 0.0), jax.random.key(1), 256).quantile(0.5)
    found = symmetric(slowest_of(n, cv), jax.random.key(1), 4096)
    for p in PROBS:
        assert found.quantile(p) / quiet == pytest.approx(ShiftedExponential(cv).quantile(p ** (1 / n)), rel=4e-3)


def assert_agree(one: StepTimeDistribution, other: StepTimeDistribution) -> None:
    """Quantiles within four standard errors and the error of the approximation of factors (0.1% of the spread)."""
    for p in PROBS:
        error = math.hypot(one.mc_error(p), other.mc_error(p))
        assert abs(one.quantile(p) - other.quantile(p)) < 4 * error + 1e-3 * one.quantile(p)


def test_prediction_agrees_with_brute_force(tmp_path: Path):
    program = lower(load_job(job_file(tmp_path, ALL_VARY)))
    assert_agree(symmetric(program, jax.random.key(2), 4096), brute_force(program, jax.random.key(3), 4096))


def test_commands_know_the_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, space = job_file(tmp_path, ALL_VARY), tmp_path / "space.yaml"
    space.write_text(SPACE)
    assert main(["check", file]) == 0
    capsys.readouterr()
    assert main(["predict", file, "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert main(["search", file, "--space", str(space), "--top", "2", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert best["p50_s"] < best["p95_s"]
    assert "gemm" in json.dumps(predicted)


def test_the_recipe_of_the_documentation_makes_the_same_family():
    more = "print(FAMILIES.named('shifted_exponential')(0.1).ppf_normal(2.0))"
    found = float(printed("A distribution family", more))
    assert found == pytest.approx(float(ShiftedExponential(0.1).ppf_normal(2.0)), rel=1e-12)


def test_show_lists_it(capsys: pytest.CaptureFixture[str]):
    assert main(["show", "families", "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)[-1]
    assert entry["name"] == "shifted_exponential"
    assert entry["fields"] == "cv"
    assert main(["show", "families"]) == 0
    assert "exponential of mean one" in capsys.readouterr().out
