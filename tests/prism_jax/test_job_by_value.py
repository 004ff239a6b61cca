"""Jobs by value: equal, hashed and pickled by content; a copy in another process gives the same bits."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import prism_jax
from prism_jax.calibration.calibration import shipped
from prism_jax.core.content import content_hash
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.program import lower
from prism_jax.system.catalog import cluster
from prism_jax.tables.streams import example_files
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

PLAN = ParallelPlan(tp=2, pp=2, dp=4, micro_batch=1, global_batch=32, seq_len=1024, zero_stage=1)
CHANGES = (
    {},
    {"schedule": "gpipe"},
    {"schedule": "zb_h1"},
    {"schedule": "interleaved", "virtual_stages": 2},
    {"schedule": "dualpipe"},
    {"schedule": "zb_v", "virtual_stages": 2},
    {"recompute": "full"},
    {"zero_stage": 0, "sharding": "fsdp"},
    {"dtype": "fp8", "sequence_parallel": True},
    {"layer_split": (15, 17)},
    {"global_batch": 64},
    {"attention": "unfused"},
    {"zero_stage": 3},
)


def jobs() -> list[Job]:
    """All shipped examples, and a job of every schedule and sharding."""
    examples = [prism_jax.load_job(name) for name in example_files()]
    made = [
        Job(model("llama-2-7b"), cluster("dgx-h100", 16), replace(PLAN, **change), preset("h100-default"))  # pyright: ignore[reportArgumentType]
        for change in CHANGES
    ]
    return [*examples, *made]


@pytest.mark.parametrize("job", jobs(), ids=lambda job: job.content[:8])
def test_a_pickled_job_is_the_same_job(job: Job) -> None:
    assert job.efficiency  # what is derived does not travel
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job
    assert hash(copy) == hash(job)
    assert "efficiency" not in vars(copy)
    assert copy.efficiency == job.efficiency


def test_jobs_differ_where_anything_differs() -> None:
    every = [*jobs(), replace(jobs()[0], framework="nanotron"), replace(jobs()[0], calibration=shipped())]
    assert len({job.content for job in every}) == len(every)
    assert jobs()[-1] != jobs()[-1].plan


def test_equal_jobs_are_lowered_once() -> None:
    one, other = (prism_jax.load_job("llama2_7b_fsdp_64") for _ in range(2))
    assert one is not other
    assert lower(one) is lower(other)


def test_another_process_gives_the_same_content_and_bits(tmp_path: Path) -> None:
    every = jobs()[-len(CHANGES) :] + jobs()[:7]
    assert len(every) == 20
    (tmp_path / "jobs.pickle").write_bytes(pickle.dumps(every))
    code = (
        "import pickle, sys, jax, numpy as np, prism_jax\n"
        "jobs = pickle.load(open(sys.argv[1], 'rb'))\n"
        "found = [prism_jax.predict(j, key=jax.random.key(3), n_samples=64, pad=True).samples_s for j in jobs[:13]]\n"
        "np.savez(sys.argv[2], *found)\n"
        "print('\\n'.join(j.content for j in jobs))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "jobs.pickle"), str(tmp_path / "found.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [job.content for job in every]
    with np.load(tmp_path / "found.npz") as found:
        for name, job in zip(found.files, every, strict=False):
            here = prism_jax.predict(job, key=jax.random.key(3), n_samples=64, pad=True).samples_s
            assert here.tobytes() == found[name].tobytes()


def test_what_has_no_content_is_refused() -> None:
    with pytest.raises(TypeError, match="no content"):
        content_hash(lambda: 0)
    with pytest.raises(TypeError, match="no content"):
        content_hash({"a": object()})
    assert content_hash((1, 2)) != content_hash((1,), 2)
    assert content_hash(np.zeros(3)) != content_hash(np.zeros((3, 1)))
