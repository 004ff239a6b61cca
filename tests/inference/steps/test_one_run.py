"""What a fit of step times says of one run, and of one configuration: no shares of variance, and the level of the job it logs."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from inference.steps.data import StepsData
from inference.steps.model import StepsModel
from inference.steps.report import describe, kind_words, variance_shares
from inference.steps.runs import P99
from prism_jax.calibration.key import MeasuredLevel, NoLevel
from prism_jax.fits.report import CleaningReport, FitFacts, Verdict, fit_card
from prism_jax.trace.level_changes import MIXES

MODEL = StepsModel()
N_STEP, STEP_S, STEP_CV = 400, 9.8, 0.02


def log_of(n_run: int = 1, seed: int = 0, **more: Any) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = n_run * N_STEP
    rows = {"run": np.repeat(np.arange(n_run), N_STEP).astype(str), "step": np.tile(np.arange(N_STEP), n_run)}
    return pd.DataFrame({**rows, "duration_s": STEP_S * np.exp(STEP_CV * rng.standard_normal(n)), **more})


def prior_draws(data: StepsData, n: int = 20) -> dict[str, np.ndarray]:
    """The centres of the priors, as draws."""
    start = MODEL.start(data)
    start["amplitude"] = np.outer(start["size"], start["effect"])
    return {name: np.repeat(np.asarray(value)[None], n, axis=0) for name, value in start.items()}


def level_of(frame: pd.DataFrame) -> MeasuredLevel | NoLevel:
    data = MODEL.prepare(frame)
    return MODEL.measured_level(data, prior_draws(data))


def test_one_run_has_no_shares_of_variance_and_says_so() -> None:
    data = MODEL.prepare(log_of())
    said = describe(data, prior_draws(data))
    assert said["variance_shares"] == {}
    assert any(note.startswith("one run: not estimable") for note in said["notes"])
    assert "level_dof" not in said
    assert said["step time"]["median_step_s"] == pytest.approx(STEP_S, rel=4 * 1.25 * STEP_CV / np.sqrt(N_STEP))
    assert said["step time"]["spread_of_total_time_between_runs"] is None


def test_runs_of_one_configuration_have_no_shares_but_a_spread() -> None:
    data = MODEL.prepare(log_of(5))
    said = describe(data, prior_draws(data))
    assert said["variance_shares"] == {}
    assert any(note.startswith("one configuration: not estimable") for note in said["notes"])
    assert said["step time"]["spread_of_total_time_between_runs"] is not None


def test_levels_with_one_member_have_no_share() -> None:
    parts = [log_of(2, seed).assign(run=lambda f, s=seed: f"{s}-" + f["run"], system=f"s{seed}") for seed in range(4)]
    data = MODEL.prepare(pd.concat(parts, ignore_index=True))
    shares = variance_shares(data, prior_draws(data), P99)
    assert set(shares) == {"system", "configuration", "run"}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-3)
    single = MODEL.prepare(
        pd.DataFrame(pd.concat([part[part["run"].str.endswith("-0")] for part in parts], ignore_index=True))
    )
    assert "run" not in variance_shares(single, prior_draws(single), P99)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("step_s | ", "step time"),
        (" | bert", "step time of bert"),
        ("log_dt_ms | bert", "time between log lines of bert"),
    ],
)
def test_kinds_are_said_in_words(kind: str, words: str) -> None:
    assert kind_words(kind) == words


def test_the_level_is_the_median_step_with_its_sampling_error() -> None:
    frame = log_of()
    found = level_of(frame)
    assert isinstance(found, MeasuredLevel)
    assert found.step_s == pytest.approx(float(np.median(frame["duration_s"].to_numpy()[3:])))
    assert (found.n_runs, found.is_mean, np.isnan(found.n_gpus)) == (1, False, True)
    sampling = np.sqrt(np.pi / 2.0 / N_STEP) * STEP_CV
    assert 0.7 * sampling < found.log_sd < 0.02, "another run of the job differs too, by per mille"


def test_steps_that_follow_each_other_tell_less_of_the_level() -> None:
    """The variance of a mean, and nearly that of a median, grows by (1 + r) / (1 - r)."""
    data = MODEL.prepare(log_of())
    draws, n = prior_draws(data), N_STEP - 3
    levels = [MODEL.measured_level(replace(data, ar1=np.array([r])), draws) for r in (0.0, 0.9)]
    variance = [level.log_sd**2 for level in levels if isinstance(level, MeasuredLevel)]
    assert variance[1] - variance[0] == pytest.approx((19.0 - 1.0) * np.pi / 2.0 / n * STEP_CV**2, rel=0.3)


def test_logs_of_several_steps_a_line_are_means() -> None:
    frame = log_of().assign(metric="log_dt_ms", n_steps=10)
    found = level_of(frame)
    assert isinstance(found, MeasuredLevel)
    assert found.is_mean
    assert found.step_s == pytest.approx(float(np.median(frame["duration_s"].to_numpy()[3:])) / 10.0)
    assert found.n_steps == 10 * (N_STEP - 3)


def test_the_number_of_gpus_is_kept_where_the_table_says_it() -> None:
    found = level_of(log_of().assign(n_gpus=64, job="plan.tp=8"))
    assert isinstance(found, MeasuredLevel)
    assert (found.n_gpus, found.job) == (64.0, "plan.tp=8")


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pd.concat([log_of(), log_of().assign(run="other", system="other")]), "2 configurations"),
        (
            pd.concat([log_of().assign(job="plan.tp=8"), log_of().assign(run="other", job="plan.tp=4")]),
            "2 configurations",
        ),
        (log_of().assign(metric="log_dt_ms"), "not the times of single steps"),
        (log_of(4).assign(group="g"), "not the times of single steps"),
    ],
    ids=["two systems", "two jobs of one log", "intervals of unknown length", "a schedule"],
)
def test_no_level_is_told_where_it_is_not_of_one_job(frame: pd.DataFrame, why: str) -> None:
    found = level_of(frame)
    assert isinstance(found, NoLevel)
    assert why in found.why


def test_one_configuration_is_replicated_step_by_step() -> None:
    data = MODEL.prepare(log_of())
    checked = MODEL.replicate(data, prior_draws(data), jax.random.key(0))
    assert checked is not None
    np.testing.assert_allclose(np.median(checked.predicted), 1.0, atol=0.005)
    assert checked.coverage(0.9) > 0.8


def test_steps_in_two_regimes_are_told_and_the_card_warns() -> None:
    rng = np.random.default_rng(3)
    frame = log_of()
    plain = MODEL.prepare(frame)
    mixed = MODEL.prepare(frame.assign(duration_s=frame["duration_s"] * np.where(rng.random(N_STEP) < 0.3, 1.25, 1.0)))
    assert not any(MIXES in note for note in describe(plain, prior_draws(plain))["notes"])
    (note,) = [one for one in describe(mixed, prior_draws(mixed))["notes"] if MIXES in one]
    assert note.startswith("0: the steps have two levels, ")
    verdict = Verdict(True, "good: chains agree", 1.0, 1000.0, "", 0, np.nan)
    fit = FitFacts("fit", "steps", "map", verdict, "", {}, 1.0, CleaningReport(400, 400), {"notes": [note]})
    card = fit_card(fit, None, is_new=True)
    assert card.tone == "unsure"
    assert card.verdict == "Good: chains agree, but the steps have several levels."
    assert card.facts["warning"] == note.partition(": what is said")[0]
    assert "of the steps take 12.2" in card.facts["warning"] or "of the steps take 12.3" in card.facts["warning"]
    calm = fit_card(replace(fit, about={"notes": ["short"]}), None, is_new=True)
    assert calm.tone == "good"
    assert not calm.facts["warning"]
