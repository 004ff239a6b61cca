"""A fit of collectives of which nothing applies to a job is named, and why."""

from pathlib import Path

from prism_jax import load_job
from prism_jax.fits.load_fits import collectives_of, unused_note
from prism_jax.job.job import Job
from prism_jax.variability.families import StudentT
from prism_jax.variability.tree import ClassVariability, Variability

JOB = """\
name: small
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8, zero_stage: 3}
"""


def job(folder: Path) -> Job:
    (folder / "job.yaml").write_text(JOB)
    return load_job(folder / "job.yaml")


def fitted(*names: str) -> Variability:
    return Variability(classes={name: ClassVariability(call=StudentT(0.02, 4.0)) for name in names})


def test_a_fit_of_a_collective_that_the_job_lacks_is_named(tmp_path: Path) -> None:
    sharded = job(tmp_path)
    assert collectives_of(sharded) == ["all_gather"]
    note = unused_note(fitted("all_reduce"), sharded, "net.npz")
    assert note is not None
    assert "net.npz: nothing of this fit applies to the job: the fit is of all_reduce" in note
    assert note.endswith("and the job runs all_gather")


def test_a_fit_with_something_that_applies_is_not_named(tmp_path: Path) -> None:
    sharded = job(tmp_path)
    assert unused_note(fitted("all_reduce", "all_gather"), sharded, "net.npz") is None
    assert unused_note(fitted("all_reduce", "gemm"), sharded, "net.npz") is None
    assert unused_note(Variability(), sharded, "net.npz") is None
