"""Predictions: exact cases, errors of sampling, and the same bits in every process."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.simulate.inputs import MAX_KNOWN_REPLICAS, known_gpus
from prism_jax.simulate.predict import FALLBACK_STEPS, brute_force, predict, symmetric
from prism_jax.variability.families import LogNormal, StudentT
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_job, make_program

ROOT = Path(__file__).resolve().parents[3]
QUANTILES = (0.05, 0.5, 0.95, 0.99, 0.999)
HEAVY_CALLS = {
    "no persistent factor": Variability("t", compute_varies(call=StudentT(0.02, 3.0))),
    "a tiny one": Variability("t", compute_varies(gpu=LogNormal(0.0005), call=StudentT(0.02, 3.0))),
    "spikes": Variability("t", compute_varies(gpu=LogNormal(0.003), call=Mixture(0.01, 0.01, 3.0, 0.1))),
}


@pytest.mark.parametrize("method", [symmetric, brute_force], ids=lambda f: f.__name__)
def test_without_variability_every_quantile_is_the_deterministic_step(method: object) -> None:
    """Exactly, and without error."""
    result = method(make_program(Variability(), dp=8), jax.random.key(0), 256)  # type: ignore[operator]
    assert {result.quantile(p) for p in QUANTILES} == {result.deterministic_s}
    assert {result.mc_error(p) for p in QUANTILES} == {0.0}
    assert result.std_s == 0.0


def test_zero_variability_of_a_real_job_needs_no_way_out() -> None:
    result = predict(make_job(), key=jax.random.key(0))
    assert result.notes == ()
    assert result.method == "symmetric"
    assert result.quantile(0.99) == result.deterministic_s


def test_the_same_key_gives_the_same_answer_and_another_key_another() -> None:
    program = make_program(EVERYTHING, dp=8)
    for method in (symmetric, brute_force):
        first, again, other = (method(program, jax.random.key(seed), 512).samples_s for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.isin(first, other).any()


def test_more_replicas_are_never_faster() -> None:
    medians = [
        symmetric(make_program(EVERYTHING, dp=dp), jax.random.key(0), 2048).quantile(0.5) for dp in (1, 2, 8, 64, 512)
    ]
    assert medians == sorted(medians)


def test_more_columns_mean_less_error() -> None:
    """Beyond the columns a chunk may hold, too."""
    program = make_program(EVERYTHING, dp=8)
    few, many = (symmetric(program, jax.random.key(4), n) for n in (2048, 1 << 15))
    assert many.n_samples == 1 << 15
    assert many.mc_error(0.95) < few.mc_error(0.95)
    assert abs(many.quantile(0.95) - few.quantile(0.95)) < 5 * np.hypot(few.mc_error(0.95), many.mc_error(0.95))


@pytest.mark.parametrize("seed", [0, 2, 7, 15])
@pytest.mark.parametrize("name", HEAVY_CALLS)
def test_heavy_tailed_calls_make_it_fall_back_to_brute_force(name: str, seed: int) -> None:
    """Whatever the draws: under the later seeds no heavy column of one of them happens to lie beyond the p95."""
    result = predict(cheap_job(HEAVY_CALLS[name], dp=64), key=jax.random.key(seed))
    assert result.method == "brute_force"
    assert result.n_samples == FALLBACK_STEPS
    assert "importance sampling is unreliable for this job" in result.notes[0]


@pytest.mark.parametrize("n_samples", [256, 2048])
@pytest.mark.parametrize("dp", [1, 8, 64, 512])
def test_light_tailed_persistent_factors_need_no_way_out(dp: int, n_samples: int) -> None:
    result = predict(cheap_job(EVERYTHING, dp=dp), key=jax.random.key(0), n_samples=n_samples)
    assert (result.method, result.notes) == ("symmetric", ())


def test_one_heavy_column_does_not_mean_brute_force() -> None:
    """Under this seed it leaves 2.4 effective columns of 512 beyond the p95, where other seeds leave 7."""
    job = load_job("llama3_405b_16384")
    result, all_of_them = (predict(job, key=6, n_samples=n) for n in (512, 2048))
    assert (result.method, result.n_samples, result.notes) == ("symmetric", 2048, ())
    np.testing.assert_array_equal(result.samples_s, all_of_them.samples_s)


def test_known_gpus_in_many_replicas_mean_brute_force() -> None:
    job = cheap_job(EVERYTHING, dp=64)
    known = known_gpus({"gemm": {2 * r: 1.02 for r in range(MAX_KNOWN_REPLICAS + 1)}}, job.plan.n_devices)
    result = predict(job, key=jax.random.key(0), known=known)
    assert result.method == "brute_force"
    assert "hold known GPUs" in result.notes[0]


def test_a_known_slow_gpu_slows_the_step() -> None:
    job = cheap_job(EVERYTHING, dp=8)
    usual = predict(job, key=jax.random.key(0)).quantile(0.5)
    slow = predict(job, key=jax.random.key(0), known=known_gpus({"all": {3: 1.3}}, 32)).quantile(0.5)
    assert slow > 1.08 * usual


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gem": {0: 1.1}}, "did you mean gemm"),
        ({"all": {32: 1.1}}, "GPU 32, but the job has GPUs 0 to 31"),
        ({"all": {0: 0.0}}, "must be a positive number"),
        ({"all": {0: float("nan")}}, "must be a positive number"),
    ],
)
def test_impossible_known_gpus_are_refused(given: dict[str, dict[int, float]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        known_gpus(given, 32)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(DataError, match="one of symmetric, brute_force"):
        predict(make_job(), key=jax.random.key(0), method="brute")


@pytest.mark.parametrize("tp", [2, 32])
def test_double_precision_gives_the_same_answer(x64: None, tp: int) -> None:
    """The same random words; rounding and the order of a maximum are all that differs."""
    double = symmetric(make_program(EVERYTHING, dp=8, tp=tp), jax.random.key(1), 256)
    jax.config.update("jax_enable_x64", False)
    single = symmetric(make_program(EVERYTHING, dp=8, tp=tp), jax.random.key(1), 256)
    np.testing.assert_allclose(single.samples_s, double.samples_s, rtol=1e-4)


def test_padding_the_graph_changes_no_sample() -> None:
    job = cheap_job(EVERYTHING, pp=3, dp=4)
    plain, padded = (predict(job, key=jax.random.key(0), pad=pad) for pad in (False, True))
    np.testing.assert_allclose(plain.samples_s, padded.samples_s, rtol=2e-6)


def cheap_job(tree: Variability, **plan: object) -> Job:
    """A job small enough for the brute force of a test."""
    job = make_job(tree, **plan)  # type: ignore[arg-type]
    return replace(job, name="cheap")


DEVICES = """
import json, sys, jax
from prism_jax.simulate.predict import brute_force
from prism_jax.simulate.predict import symmetric
from tests.support.jobs import EVERYTHING, make_program
assert len(jax.devices()) == int(sys.argv[1])
program = make_program(EVERYTHING, dp=8)
results = [symmetric(program, jax.random.key(7), 512), brute_force(program, jax.random.key(7), 100)]
print(json.dumps([[x.hex() for x in r.samples_s.tolist()[::16]] for r in results]))
"""


def test_one_and_two_devices_give_identical_bits() -> None:
    answers = []
    for n in (1, 2):
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={n}"}
        run = subprocess.run(
            [sys.executable, "-c", DEVICES, str(n)], cwd=ROOT, env=os.environ | flags, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        answers.append(json.loads(run.stdout.splitlines()[-1]))
    assert answers[0] == answers[1]


# --- Two processes under `jax.distributed` share the columns and all get the answer of one process -------------------


PROGRAM = """
import json, sys
import jax

rank, n_process, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if n_process > 1:
    jax.distributed.initialize(address, n_process, rank)
from prism_jax.simulate.predict import predict
from tests.support.jobs import EVERYTHING, make_job

job = make_job(EVERYTHING, pp=2, dp=8)
symmetric = predict(job, key=jax.random.key(1), n_samples=128)
brute = predict(job, key=jax.random.key(1), n_samples=16, method="brute_force")
print(json.dumps([len(jax.devices()), symmetric.samples_s[::1024].tolist(), brute.samples_s.tolist()]))
"""


def start(rank: int, n_process: int, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(rank), str(n_process), address],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> list[object]:
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return json.loads(text.splitlines()[-1])


@pytest.mark.slow
def test_two_processes_give_the_answer_of_one() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    alone = answer(start(0, 1, address))
    together = [answer(p) for p in [start(rank, 2, address) for rank in range(2)]]
    assert alone[0] == 1
    for found in together:
        assert found[0] == 2
        assert found[1:] == alone[1:]


@pytest.mark.parametrize("key", [7, np.int64(7), jax.random.PRNGKey(7)])
def test_a_seed_is_a_key(untyped: None, key: object) -> None:
    job = cheap_job(EVERYTHING, dp=2)
    expected = predict(job, key=jax.random.key(7), n_samples=64).samples_s
    np.testing.assert_array_equal(predict(job, key=key, n_samples=64).samples_s, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["a", True, 1.5, jax.random.split(jax.random.key(0))])
def test_what_is_no_key_is_refused(untyped: None, key: object) -> None:
    with pytest.raises(DataError, match=r"jax.random.key\(0\), or an integer seed"):
        predict(make_job(), key=key)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a seed lies between 0"):
        predict(make_job(), key=-1)
