"""Lengths of packed documents: FLOPs, seconds and MFU follow the sum of their squares; what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from prism_jax.core.errors import ConfigError, PlanError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.job.rules import check_plan, workload_notes
from prism_jax.plan.packing import Data, Lengths, parse_lengths
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.spec import TransformerSpec

LLAMA = model("llama-3-8b")
PLAN = ParallelPlan(1, 64, 8192, dp=8, zero_stage=1)
DOCUMENTS = (512, 512, 1024, 2048, 4096)


def packed(plan: ParallelPlan, *lengths: int) -> ParallelPlan:
    return replace(plan, data=Data(parse_lengths(list(lengths))))


def test_attention_counts_the_squares_of_the_lengths() -> None:
    """By hand: 3 x 4 h FLOPs per layer and pair of tokens that see each other, l (l + 1) / 2 pairs in a document."""
    assert isinstance(LLAMA, TransformerSpec)
    whole, own = (LLAMA.step_flops(plan, recomputed=False) for plan in (PLAN, packed(PLAN, *DOCUMENTS)))
    pairs = {name: sum(n * (n + 1) / 2 for n in lengths) for name, lengths in (("one", [8192]), ("many", DOCUMENTS))}
    per_pair = 3 * 4 * LLAMA.n_layers * LLAMA.hidden
    assert whole - own == pytest.approx(64 * per_pair * (pairs["one"] - pairs["many"]))


@pytest.mark.parametrize("recompute", ["none", "full", "selective_op"])
def test_one_document_per_sequence_changes_nothing(recompute: str) -> None:
    plan = replace(PLAN, recompute=recompute)
    for recomputed in (False, True):
        found = LLAMA.step_flops(packed(plan, 8192), recomputed=recomputed)
        assert found == pytest.approx(LLAMA.step_flops(plan, recomputed=recomputed), rel=1e-12)


def test_a_step_is_faster_the_shorter_the_documents() -> None:
    def seconds(*lengths: int) -> float:
        plan = packed(PLAN, *lengths) if lengths else PLAN
        return deterministic(
            lower(Job(LLAMA, cluster("dgx-h100", 8), plan, preset("none"), framework="megatron-core"), True)
        )

    assert seconds() == pytest.approx(seconds(8192))
    assert seconds(8192) > seconds(4096) > seconds(2048) > seconds(512)
    assert seconds(*DOCUMENTS) == pytest.approx(seconds(*DOCUMENTS, *DOCUMENTS))  # a sample, in any number


def test_a_window_sees_no_more_than_its_document() -> None:
    gemma = model("gemma-3-27b")  # windows of 1,024 tokens
    plain = replace(gemma, window=None)
    short, long = (packed(PLAN, length) for length in (256, 4096))
    assert gemma.step_flops(short, recomputed=False) == pytest.approx(plain.step_flops(short, recomputed=False))
    assert gemma.step_flops(long, recomputed=False) < plain.step_flops(long, recomputed=False)


def test_a_list_and_counts_say_the_same() -> None:
    assert parse_lengths([512, 4096, 512]) == parse_lengths({"512": 2, "4096": 1}) == Lengths(((512, 2), (4096, 1)))
    assert parse_lengths(parse_lengths([3]).written) == parse_lengths([3]) == parse_lengths(3)


@pytest.mark.parametrize(
    "wrong", [[], {}, [0], [-5], ["a"], [1.5], {"x": 2}, {512: 0}, 0, -7, True, "512", [True], [1] * 20_001]
)
def test_what_is_no_length_is_refused(wrong: object) -> None:
    with pytest.raises(PlanError):
        parse_lengths(wrong)


JOB = """
model: {model}
cluster: {{preset: dgx-h100, n_devices: 8}}
plan: {{dp: 8, micro_batch: 1, global_batch: 8, seq_len: 8192}}
data: {{lengths: {lengths}}}
"""


def test_a_job_file_states_them(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(model="llama-3-8b", lengths="[512, 4096, 512]"))
    job = load_job(file)
    assert job.plan.data.lengths.n_documents == 3
    assert any("documents per sequence" in note for note in workload_notes(job.model, job.plan))
    assert load_job(file, ["data.lengths={8192: 4}"]).plan.data.lengths.longest == 8192
    for model_name, lengths, says in (
        ("llama-3-8b", "[9000]", "longer than plan.seq_len"),
        ("llama-3-8b", "[a]", "tokens of every document"),
        ("bert-large", "[512]", "reads no packed sequences"),
    ):
        file.write_text(JOB.format(model=model_name, lengths=lengths))
        with pytest.raises(ConfigError, match=says):
            load_job(file)


def test_a_plan_with_longer_documents_than_sequences_is_refused() -> None:
    with pytest.raises(PlanError, match="longer than"):
        check_plan(packed(PLAN, 9000), LLAMA, cluster("dgx-h100", 8))
