"""Sentences about a model under a plan, and that every report has them."""

from dataclasses import replace

import pytest

from prism_jax.job.rules import workload_notes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.prediction.check import check_job
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.sizes import AdapterSpec
from prism_jax.workload.transformer.spec import TransformerSpec

PLAN = ParallelPlan(micro_batch=1, global_batch=8, seq_len=65536)
BY_HAND = TransformerSpec("mine", 2, 64, 4, 64, 64, position="rope")


def test_a_sequence_longer_than_the_model_is_made_for_is_noted() -> None:
    (note,) = workload_notes(model("mistral-7b"), PLAN)
    assert note.startswith("seq_len = 65536 is longer than the 32768 tokens that model mistral-7b is made for")
    assert not list(workload_notes(model("mistral-7b"), replace(PLAN, seq_len=32768)))


def test_of_a_model_written_by_hand_it_is_known_where_positions_are_learned() -> None:
    assert not list(workload_notes(BY_HAND, PLAN))
    assert len(list(workload_notes(replace(BY_HAND, position="learned"), PLAN))) == 1


def test_how_much_of_a_model_with_adapters_is_trained_is_noted() -> None:
    own = replace(model("llama2-70b"), adapters=AdapterSpec(16, ("linear_qkv", "linear_proj")))
    (note,) = workload_notes(own, replace(PLAN, seq_len=4096))
    assert note == "adapters: 44.56 M of 68.98 B parameters are trained; MFU counts no weight gradients of the others"


def test_what_is_left_out_of_a_published_model_is_noted() -> None:
    (note,) = workload_notes(model("llama-4-scout"), PLAN)
    assert note == "model llama-4-scout: the vision tower of the published model is left out"


def test_a_window_without_effect_is_noted() -> None:
    own, unfused = replace(BY_HAND, window=WindowSpec(128)), replace(PLAN, attention="unfused")
    (note,) = workload_notes(own, unfused)
    assert note == "attention = unfused computes all scores: the window of 128 tokens saves nothing"
    assert not list(workload_notes(own, PLAN))
    assert not list(workload_notes(replace(own, window=WindowSpec(65536)), unfused))


@pytest.mark.parametrize("length", [8192, 262144])
def test_check_has_the_notes(length: int) -> None:
    report = check_job("llama3_405b_16384", overrides=[f"plan.seq_len={length}"])
    assert any(note.startswith("seq_len") for note in report.notes) == (length > 131072)
