"""The object and the lines of a prediction say what was computed, whatever the job."""

import json
from dataclasses import replace

import pytest

from prism_jax.calibration.evidence import Evidence
from prism_jax.core.page_text import page_lines
from prism_jax.core.readable import bar, prob, with_error
from prism_jax.job.job import Published
from prism_jax.prediction.figures import Bounds, ModelBand, PublishedFigure, TailFacts, TailQuantiles
from tests.support.synthetic import EXPLANATION, distribution, job, report, report_of

KEYS = {
    "step_time_s": {"mean", "std", "p5", "p50", "p95", "p99", "p999"},
    "mc_error_s": {"p50", "p95", "p99"},
    "model_band_s": {"p5", "p50", "p95"},
    "memory_bytes_per_gpu": {"total", "parameters", "gradients", "optimizer", "activations", "capacity", "headroom"},
    "breakdown_s": set(EXPLANATION.breakdown_s),
    "elapsed_s": {"compile", "run"},
    "guarantee": {"p", "confidence", "bound_s", "sentence"},
}
PLAIN = (
    "deterministic_s",
    "mfu",
    "tflops_per_gpu",
    "tokens_per_s_per_gpu",
    "fits",
    "n_samples",
    "seed",
    "method",
    "notes",
)


def test_the_object_has_every_promised_key_and_is_json():
    made = json.loads(report().to_json())
    for name, inner in KEYS.items():
        assert inner <= made[name].keys(), name
    assert set(PLAIN) <= made.keys()


def test_the_object_repeats_the_distribution():
    made, of = report().to_dict(), distribution()
    assert made["step_time_s"]["p99"] == of.quantile(0.99)
    assert made["mc_error_s"]["p95"] == of.mc_error(0.95)
    assert made["prob_slower"]["0.01"] == of.prob_slower(0.01)
    assert made["guarantee"]["bound_s"] == of.guarantee().bound_s


def test_rates_agree_with_each_other():
    made = report().to_dict()
    tokens_per_step = 128 * 8192
    assert made["tokens_per_s_per_gpu"] == pytest.approx(tokens_per_step / made["step_time_s"]["p50"] / 64)
    assert made["mfu"] == pytest.approx(made["tflops_per_gpu"] / 989.4, rel=1e-3)  # H100 SXM, dense bf16


def test_every_figure_is_at_the_median_that_is_shown():
    of = replace(job(), published=Published(step_s=2.0, tflops_per_gpu=400.0))
    made = report_of(of)
    slower = report_of(of, times=replace(made.step_time_s, p50=2.0 * made.step_time_s.p50))
    assert slower.step_time_s.p95 == made.step_time_s.p95
    for name in ("mfu", "hfu", "tflops_per_gpu", "tokens_per_s_per_gpu"):
        assert getattr(slower, name) == pytest.approx(getattr(made, name) / 2.0)
    assert slower.model_band_s.p95 == pytest.approx(2.0 * made.model_band_s.p95)
    assert made.published is not None
    assert slower.published is not None
    for one, other, factor in zip(made.published, slower.published, (2.0, 0.5), strict=True):
        assert other.predicted == pytest.approx(factor * one.predicted)
    whole = [one.published[1].whole_matrix for one in (made, slower) if one.published]
    assert whole[0] == pytest.approx(2.0 * (whole[1] or 0.0))


def test_published_figures_stand_next_to_the_prediction_by_both_counts():
    plain = report()
    shown = replace(plain, published=(PublishedFigure("tflops_per_gpu", 400.0, 360.0, 420.0),))
    sentence = "published 400 TFLOP/s per GPU: predicted 360 (-10.0%), by Megatron-LM's count 420 (+5.0%)"
    assert sentence in " ".join(" ".join(shown.lines()).split())
    assert shown.card().facts["speed"].endswith("; published 400 TFLOP/s per GPU")
    assert not any("published" in line for line in plain.lines())
    assert PublishedFigure("step_s", 2.0, 1.0).sentence == "published 2 s per step: predicted 1 s (-50.0%)"


def test_both_counts_of_causal_attention_stand_side_by_side():
    made = report()
    whole = made.whole_matrix
    assert whole is not None
    assert whole.mfu / made.mfu == pytest.approx(whole.tflops_per_gpu / made.tflops_per_gpu)
    assert 1.0 < whole.mfu / made.mfu < 1.5
    assert any("by Megatron-LM's count" in line for line in made.lines())


@pytest.mark.parametrize("kind", ["usual", "constant", "narrow", "skewed", "long_tailed", "noisy"])
@pytest.mark.parametrize("changes", [{}, {"pp": 2, "dp": 8, "recompute": "full"}, {"micro_batch": 8}])
def test_lines_are_short_enough_for_a_terminal(kind: str, changes: dict[str, int]):
    lines = report(kind, **changes).lines()
    assert max(map(len, lines)) <= 110
    assert not any(line != line.rstrip() for line in lines)


def test_quantiles_come_with_their_error():
    text = "\n".join(report("noisy").lines())
    value, error = with_error(distribution("noisy").quantile(0.95), distribution("noisy").mc_error(0.95))
    assert f" p95        {value} ± {error} s" in text


def test_a_guarantee_is_stated_or_its_absence_is_explained():
    stated = "with 99% confidence at least 95% of steps take at most"
    assert stated in "\n".join(report().lines())
    assert report("noisy").guarantee is None
    lines = report("noisy").lines()
    assert stated not in "\n".join(lines)
    assert any("8 randomisations differ too much to bound the 0.95 quantile" in line for line in lines)


def test_the_mean_step_is_split_completely():
    lines = report().lines()
    first = lines.index("Mean step time by component, average GPU") + 1
    parts = lines[first : lines.index("", first)]
    shares = [float(line.split("%")[0].split()[-1]) for line in parts]
    assert "Critical path: GEMM 80%, attention 10%, tp communication 10%." in lines
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert shares == sorted(shares, reverse=True)


def test_a_job_without_variability_says_so():
    assert "Every step takes 6.3 s: the job has no variability." in report("constant").lines()


def test_memory_says_by_how_much_it_does_not_fit():
    made = report(micro_batch=8)
    assert not made.fits
    over = -made.memory_bytes_per_gpu.headroom / 2**30
    assert made.card().verdict.startswith(f"DOES NOT FIT: {over:.1f} GiB too much per GPU.")
    assert made.card().tone == "bad"


def test_notes_reach_the_reader():
    made = replace(report(), notes=("the tail was simulated in full",))
    assert "note: the tail was simulated in full" in made.lines()


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (6.51025, 0.00054, ("6.5103", "0.0005")),
        (12.3, 0.4, ("12.3", "0.4")),
        (140.2, 3.0, ("140", "3")),
        (6.3, 0.0, ("6.300", "0.000")),
    ],
)
def test_estimates_show_the_digits_their_error_allows(value: float, error: float, shown: tuple[str, str]):
    assert with_error(value, error) == shown


def test_bars_are_proportional_to_an_eighth_of_a_character():
    assert bar(0.5, 4) == "██  "
    assert bar(1 / 32, 4) == "▏   "
    assert bar(2.0, 4) == "████"


def test_probabilities_are_percentages():
    assert [prob(p) for p in (0.0, 0.00098, 0.052, 0.4961, 1.0)] == ["0%", "0.098%", "5.2%", "50%", "100%"]


def test_the_first_screen_answers_in_ten_lines_of_eighty_columns():
    made = report()
    band, card = made.model_band_s, made.card()
    assert band.p5 < band.p50 < band.p95
    assert card.verdict.startswith("Fits. Step p50 6.5")
    assert "(90%: " in card.verdict
    assert "p99 " in card.facts["spread"]
    assert list(card.facts) == ["interval", "spread", "speed", "memory"]
    assert card.evidence
    assert card.next_step
    lines = page_lines(replace(made.page(), is_short=True), 80)
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80


def test_what_was_not_stated_is_said_with_what_it_may_change():
    made = report()
    assert made.card().assumptions == tuple(one.sentence for one in made.open_fields[:2])
    assert "  framework    not stated: the average of frameworks" in made.lines()
    told = replace(made, job=replace(made.job, framework="megatron-core"))
    assert "  framework    megatron-core" in told.lines()


def test_long_reasons_go_on_in_the_next_line():
    far = Evidence(0, 0, None, None, (), True, kind="far", why=("one reason " * 8, "another reason " * 8))
    text = " ".join(" ".join(replace(report(), evidence=far, open_fields=()).lines()).split())
    assert text.count("one reason") == text.count("another reason") == 8


def test_quantiles_on_other_systems_stand_by_the_preset_s_and_in_seconds():
    ratio, seconds = Bounds(0.001, 0.1), Bounds(6.0, 8.0)
    tail = TailFacts(TailQuantiles(ratio, Bounds(0.002, 0.2)), TailQuantiles(seconds, Bounds(6.1, 9.0)))
    text = "\n".join(replace(report(), tail=tail).lines())
    assert "+0.1% to +10%" in text
    assert "on 90% of systems" in text
    assert "p95 6 s to 8 s, p99 6.1 s to 9 s" in " ".join(text.split())


def test_both_spreads_are_named():
    within, between = (line for line in report().lines() if " allocation" in line and "deviation" in line)
    assert within == "  one allocation  standard deviation 41 ms from step to step, p95 6.620 ± 0.004 s"
    assert between == "  allocations     standard deviation 91 ms of the mean step, 83 ± 2% of the variance"


def test_a_model_that_knows_everything_has_no_band():
    made = report()
    median_s = made.step_time_s.p50
    sure = replace(made, model_band_s=ModelBand(median_s, median_s, median_s))
    assert "90%" not in sure.card().verdict
