"""Shipped models by name, what is noted of models that are unlike the usual, and models known by ladders of steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.cloud.laws import LadderLaw
from prism_jax.core.errors import PrismError, SpecError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.step import step_cost
from prism_jax.job.rules import check_plan, workload_notes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.prediction.check import check_job
from prism_jax.system import catalog
from prism_jax.workload.catalog import _entries, model, model_names
from prism_jax.workload.ladder import LadderSpec, same_as, slowness
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.sizes import AdapterSpec
from prism_jax.workload.transformer.spec import TransformerSpec

_SUFFIX = {"M": 10**6, "B": 10**9, "T": 10**12}


def agrees(n_params: int, text: str) -> bool:
    """Whether a count prints as a text: "6738415616" is exact, "145.6B" is rounded to 0.1 billion."""
    digits, scale = (text[:-1], _SUFFIX[text[-1]]) if text[-1] in _SUFFIX else (text, 0)
    half_ulp = 0.5 * scale / 10 ** len(digits.partition(".")[2])
    return abs(n_params - (float(digits) * scale or int(digits))) <= half_ulp


@pytest.mark.parametrize("name", model_names())
def test_computed_parameter_count_is_the_published_one(name: str) -> None:
    entry = _entries()[name]
    assert agrees(model(name).n_params(), entry["published"]), (model(name).n_params(), entry["published"])
    assert entry["source"]


def test_deepseek_v3_checkpoint_has_main_model_and_prediction_module_with_copies_of_embedding_and_head() -> None:
    spec = model("deepseek-v3")
    copies = 2 * spec.vocab * spec.hidden  # the checkpoint repeats the shared embedding and head
    assert spec.n_params() + spec.mtp_params() + copies == 684_489_845_504  # HF safetensors of deepseek-ai/DeepSeek-R1
    assert spec.n_params() == 671_026_419_200


@pytest.mark.parametrize(
    ("name", "embedding", "published", "tolerance"),
    [
        ("mixtral-8x7b", True, 12.9e9, 0.05e9),  # arXiv 2401.04088 abstract: 13B; mistral.ai: 12.9B
        ("mixtral-8x22b", True, 39e9, 0.5e9),  # mistral.ai
        ("deepseek-v2", True, 21e9, 0.5e9),  # arXiv 2405.04434
        ("deepseek-v3", False, 36.6e9, 0.05e9),  # README_WEIGHTS.md: 36.6B with the head, without the embedding
        ("deepseek-moe-16b", True, 2.8e9, 0.05e9),  # arXiv 2401.06066
        ("qwen3-30b-a3b", True, 3.3e9, 0.1e9),  # arXiv 2505.09388 (3.35e9, printed truncated)
        ("qwen3-235b-a22b", True, 22e9, 0.5e9),
    ],
)
def test_active_parameters_are_the_published_ones(
    name: str, embedding: bool, published: float, tolerance: float
) -> None:
    spec = model(name)
    active = spec.n_params_active() - (0 if embedding else spec.embedding_params())
    assert active == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("GPT3_175B", "gpt3-175b"),
        ("Llama 3.1 405B", "llama-3-405b"),
        ("meta-llama/Llama-2-7B", "llama-2-7b"),
        ("DeepSeek V3", "deepseek-v3"),
        ("MT-NLG 530B", "gpt3-530b"),
        ("mixtral_8x7B", "mixtral-8x7b"),
    ],
)
def test_model_names_are_matched_tolerantly(text: str, name: str) -> None:
    assert model(text).name == name


def test_the_dot_in_a_size_is_not_ignored() -> None:
    assert model("gpt3-7.5b").hidden == 4096
    with pytest.raises(SpecError, match="Did you mean"):
        model("gpt3-75b")


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"unknown model 'lama-2-7b'\. Did you mean llama-2-7b"):
        model("lama-2-7b")


def test_a_printed_count_is_exact_only_without_suffix() -> None:
    assert agrees(6_738_415_616, "6738415616")
    assert not agrees(6_738_415_617, "6738415616")
    assert agrees(145_649_999_999, "145.6B")
    assert not agrees(145_660_000_000, "145.6B")


# --- Sentences about a model under a plan, and that every report has them --------------------------------------------


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


# --- Ladders of models -----------------------------------------------------------------------------------------------


MODEL = LadderSpec("mine", 0.02, 1e-3, "v100-16gb", 25_000_000, 128)
LADDER_PLAN = ParallelPlan(micro_batch=64, global_batch=64, dtype="fp16")


def compute_s(model: LadderSpec, device: str, plan: ParallelPlan = LADDER_PLAN) -> float:
    """Of one micro-batch on one device, without the optimizer."""
    cluster = catalog.default_cluster(device, 1)
    eff = efficiency(catalog.device(device).generation)
    eff = replace(eff, correction=replace(eff.correction, memory=1.7))
    return float(step_cost(model, cluster, plan, eff).compute_s.sum())


@pytest.mark.parametrize("batch", [1, 64, 128])
def test_a_step_is_the_line_on_the_device_that_was_measured(batch: int) -> None:
    """Whatever a calibration says of kernels."""
    plan = replace(LADDER_PLAN, micro_batch=batch, global_batch=batch)
    assert compute_s(MODEL, "v100-16gb", plan) == pytest.approx(0.02 + 1e-3 * batch)


def test_the_update_of_the_weights_is_in_the_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole step on the device that was measured is the line, as the ladder was measured with its optimizer."""
    cluster = catalog.default_cluster("v100-16gb", 1)
    cost = step_cost(MODEL, cluster, LADDER_PLAN, efficiency(cluster.device.generation))
    assert float(cost.end_compute_s.sum()) == 0.0
    monkeypatch.setattr(LadderSpec, "updates_in_step", False)
    apart = step_cost(MODEL, cluster, LADDER_PLAN, efficiency(cluster.device.generation))
    assert float(apart.end_compute_s.sum()) > 1e-4  # 25 million parameters at 0.9 TB/s


def test_another_device_follows_peak_and_bandwidth() -> None:
    a, b = catalog.device("v100-16gb"), catalog.device("a100-40gb")
    ratio = np.sqrt(a.peak("fp16") / b.peak("fp16") * a.hbm_bytes_per_s / b.hbm_bytes_per_s)
    assert compute_s(MODEL, "a100-40gb") == pytest.approx(0.084 * ratio)
    assert slowness(same_as(a), a.hbm_bytes_per_s, a, "bf16") == pytest.approx(1.0)


def test_a_larger_batch_than_was_measured_is_refused() -> None:
    cluster = catalog.default_cluster("v100-16gb", 1)
    with pytest.raises(PrismError, match="largest batch of the ladder is 128"):
        check_plan(replace(LADDER_PLAN, micro_batch=256, global_batch=256), MODEL, cluster)


WRONG: dict[str, dict[str, Any]] = {
    "floor_s": {"floor_s": -1.0},
    "s_per_sample": {"floor_s": 0.0, "s_per_sample": 0.0},
    "sample_bytes": {"sample_bytes": float("nan")},
    "measured_on": {"measured_on": "v1000"},
    "n_parameters": {"n_parameters": 0},
    "most_samples": {"most_samples": 0},
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_figures_are_refused(field: str) -> None:
    with pytest.raises(SpecError, match=field):
        replace(MODEL, **WRONG[field])


def test_a_fitted_ladder_is_a_model() -> None:
    law = LadderLaw(np.array([0.01, 0.02, 0.03]), np.full(3, 1e-3), np.full(3, 0.01), (8.0, 128.0))
    assert law.model("mine", "v100-16gb", 25_000_000) == MODEL
