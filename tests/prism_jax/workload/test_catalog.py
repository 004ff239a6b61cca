"""Shipped models by name, and what is noted of models that are unlike the usual."""

from dataclasses import dataclass, replace

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.job.rules import workload_notes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.prediction.check import check_job
from prism_jax.workload.catalog import _entries, model, model_names
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.sizes import AdapterSpec
from prism_jax.workload.transformer.spec import TransformerSpec

_SUFFIX = {"M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True)
class PublishedCount:
    """A parameter count as its source prints it.

    Attributes:
        text: as printed: digits alone are exact, a suffix means rounded ("145.6B").
        n_params: its value.
        half_ulp: half a unit of the last printed digit, 0 if exact: how far a correct count may be away.
        source: paper and table, or model card.
    """

    text: str
    n_params: float
    half_ulp: float
    source: str

    @property
    def exact(self) -> bool:
        """Whether the source prints every digit."""
        return self.half_ulp == 0.0

    def agrees_with(self, n_params: int) -> bool:
        """`n_params` prints as this text."""
        return abs(n_params - self.n_params) <= self.half_ulp


def published_params(name: str) -> PublishedCount:
    """The published parameter count of a preset model."""
    entry = _entries()[name]
    return parse_count(entry["published"], entry["source"])


def parse_count(text: str, source: str = "") -> PublishedCount:
    """A printed parameter count: "6738415616" is exact, "145.6B" is rounded to 0.1 billion.

    Raises:
        SpecError: not a number with an optional suffix M, B or T.
    """
    digits, scale = (text[:-1], _SUFFIX[text[-1]]) if text[-1:] in _SUFFIX else (text, 1)
    try:
        value = float(digits) if scale > 1 else int(digits)
    except ValueError:
        raise SpecError(f"{text!r} is not a parameter count. Write it like 6738415616 or 145.6B.") from None
    n_decimals = len(digits.partition(".")[2])
    return PublishedCount(text, value * scale, 0.5 * scale / 10**n_decimals if scale > 1 else 0.0, source)


@pytest.mark.parametrize("name", model_names())
def test_computed_parameter_count_is_the_published_one(name: str) -> None:
    published = published_params(name)
    assert published.agrees_with(model(name).n_params()), (model(name).n_params(), published.text)
    assert published.source


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
    assert parse_count("6738415616").exact
    rounded = parse_count("145.6B")
    assert rounded.agrees_with(145_649_999_999)
    assert not rounded.agrees_with(145_660_000_000)
    for text in ("B", "", "6.7", "7 billion"):
        with pytest.raises(SpecError, match="not a parameter count"):
            parse_count(text)


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
