"""Two processes under `jax.distributed` share the columns and all get the answer of one process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
import jax

rank, n_process, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if n_process > 1:
    jax.distributed.initialize(address, n_process, rank)
from prism_jax.simulate import predict
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
