"""What is reported on recorded jobs: every promised key, numbers as computed, pages for people."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.core.page import Table
from prism_jax.core.readable import percent, time_with_error
from prism_jax.core.report import Report, RunRecord, to_plain
from prism_jax.explain.types import Stragglers
from prism_jax.recorded.predict_trace import check_facts, evidence_facts, prediction_facts
from prism_jax.recorded.prediction import MomentMatch, TracePrediction, predicted_curve
from prism_jax.recorded.prediction_report import (
    PredictedCurves,
    PredictedJobChange,
    TracePredictionReport,
    WhatIfReport,
)
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.replay import replay_recorded, stragglers, trace_criticality
from prism_jax.recorded.report import (
    HeldOutScore,
    MeasuredQuantiles,
    NaiveScore,
    Quantiles,
    SplitScore,
    TraceInfoReport,
    TraceReplayReport,
)
from prism_jax.recorded.trace_facts import trace_facts
from prism_jax.recorded.what_if import what_if_report
from prism_jax.trace.step_log import StepLog
from prism_jax.trace.trace import Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, planted, timed, trace_at

FAR_OFF = "treat these figures with care"
JOB = PipelineJob(pp=2, dp=3, n_micro_batch=4)
LAW = Law(step=0.03, rank=0.05, micro_batch=0.1, own=0.03, last_stage=0.2)
LOG = StepLog("a.log", "a run", np.arange(10, 40), np.linspace(1.0, 2.0, 30), np.ones(30, dtype=np.int32), ("a note",))
RECORD = RunRecord({}, None, {}, 0)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return timed(JOB, planted(JOB, 16, 0, LAW).run_s)


@pytest.fixture(scope="module")
def job(trace: Trace) -> RecordedJob:
    return fit_job(trace)


@pytest.fixture(scope="module")
def prediction() -> TracePrediction:
    rng = np.random.default_rng(0)
    return TracePrediction(rng.normal(rng.normal(2.0, 0.02, (40, 1)), 0.1, (40, 50)))


@pytest.fixture(scope="module")
def scores() -> list[SplitScore]:
    """Three splits whose errors are -4, 0 and 10%; the last one is not covered."""
    measured, found = MeasuredQuantiles(2.0, 2.2), []
    for error in (-0.04, 0.0, 0.1):
        predicted = Quantiles(*((1.0 + error) * value for value in (2.0, 2.2, 2.3)))
        interval = (predicted.p95 - 0.15, predicted.p95 + 0.15)
        naive = {"recorded steps": NaiveScore(error, 0.3), "independent pools": NaiveScore(error - 0.1, 0.5)}
        covered = interval[0] <= measured.p95 <= interval[1]
        errors = (covered, error, error, 0.2, 0.3)
        found.append(SplitScore(8, 8, HeldOutScore(*errors, measured, predicted, predicted, interval, naive)))
    return found


@pytest.fixture(scope="module")
def found(trace: Trace) -> Stragglers:
    return stragglers(trace)


@pytest.fixture(scope="module")
def what_if(trace: Trace, job: RecordedJob, found: Stragglers, prediction: TracePrediction) -> WhatIfReport:
    longer = TracePrediction(prediction.step_s * 1.1)
    changes = {"as recorded": prediction, "all slower": longer}
    return what_if_report(trace, found, trace_criticality(job), changes, RECORD)


def predicted(
    recorded: Trace | StepLog, prediction: TracePrediction, scores: Sequence[SplitScore] = (), **more: Any
) -> TracePredictionReport:
    """A report with a check if there are scores."""
    return TracePredictionReport(
        **{
            "info": trace_facts(recorded),
            "asked": PredictedJobChange(),
            "fit_replicas": None,
            "n_train": scores[0].n_train if scores else len(recorded.step_s),
            "n_test": scores[0].n_test if scores else 0,
            "steps_s": prediction_facts(prediction),
            "record": RECORD,
            "check": check_facts(scores) if scores else None,
            **more,
        }
    )


def replayed(trace: Trace) -> TraceReplayReport:
    return TraceReplayReport(
        trace_facts(trace), replay_recorded(trace), tuple(trace.steps.tolist()), tuple(trace.step_s.tolist()), RECORD
    )


def shown(report: Report) -> str:
    """All of its page: no line is left without an end, no figure without a value."""
    text = "\n".join(report.lines())
    assert "nan" not in text.split()
    assert all(line == line.rstrip() for line in text.split("\n"))
    return text


def as_json(part: Any) -> Any:
    """What JSON says of a report or a part of one."""
    return json.loads(json.dumps(to_plain(part), allow_nan=False))


# --- Objects ---------------------------------------------------------------------------------------------------------


def test_info_tells_degrees_steps_and_op_types(trace: Trace) -> None:
    made = as_json(trace_facts(trace))
    assert made["kind"] == "trace"
    expected = {"name": "synthetic", "dp": 3, "pp": 2, "tp": 1, "world_size": 6, "n_recorded_workers": 6}
    assert expected.items() <= made["job"].items()
    assert (
        made["job"]["n_ops_per_replica"] == len(trace.ops) == sum(x["ops_per_step"] for x in made["op_types"].values())
    )
    assert (made["n_steps"], made["first_step"], made["last_step"]) == (16, 10, 25)
    assert made["step_s"]["p95"] == np.quantile(trace.step_s, 0.95)
    assert made["step_s"]["cv"] == pytest.approx(trace.step_s.std() / trace.step_s.mean())
    assert made["op_types"]["forward-compute"]["ops_per_step"] == 8


def test_info_of_a_log_has_steps_and_no_ops() -> None:
    made = as_json(trace_facts(LOG))
    assert (made["kind"], made["name"], made["n_steps"], made["last_step"]) == ("step log", "a run", 30, 39)
    assert made["notes"] == ["a note"]
    assert {"job", "op_types"}.isdisjoint(made)


def test_notes_warn_of_means_and_the_steps_left_out_are_counted() -> None:
    assert trace_facts(LOG).notes == ("a note",)
    assert (trace_facts(LOG).n_left_out, trace_facts(LOG, 3).n_left_out) == (0, 3)
    counts = np.r_[np.full(29, 10), 7].astype(np.int32)
    (note,) = trace_facts(replace(LOG, n_steps=counts, notes=())).notes
    assert "means over up to 10 steps" in note


def test_partly_recorded_jobs_keep_their_size(trace: Trace) -> None:
    made = as_json(trace_facts(trace.choose(replicas=np.array([1]))))
    assert (made["job"]["dp"], made["job"]["world_size"], made["job"]["n_recorded_workers"]) == (3, 6, 2)


def test_shares_of_variance_sum_to_one(job: RecordedJob) -> None:
    made = as_json(evidence_facts(job))
    assert set(made["variance_shares"]) == {"position", "step", "rank", "micro_batch", "own"}
    assert sum(made["variance_shares"].values()) == pytest.approx(1.0)
    assert made["has_micro_batches"]


def test_prediction_has_quantiles_with_both_kinds_of_error(prediction: TracePrediction) -> None:
    found = prediction_facts(prediction)
    made = to_plain(found)
    for name, p in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert made[name] == prediction.quantile(p)
        assert getattr(found.interval, name) == prediction.interval(p, made["level"])
        assert made["mc_error"][name] == prediction.mc_error(p)
        assert made["interval"][name][0] < made[name] < made["interval"][name][1]


def test_one_split_is_told_as_it_is(scores: list[SplitScore]) -> None:
    made = to_plain(check_facts(scores[:1]))
    assert made == {name: value for name, value in to_plain(scores[0]).items() if name in made}
    assert set(made["predicted_s"]) == {"p50", "p95", "p99"}


def test_several_splits_are_averaged_and_listed(scores: list[SplitScore]) -> None:
    made = as_json(check_facts(scores))
    assert made["p95_error"] == pytest.approx(0.02)
    assert (made["p95_error_median"], made["p95_abs_error_median"]) == (0.0, 0.04)
    assert made["p95_covered"] == pytest.approx(2 / 3)
    assert [split["p95_covered"] for split in made["splits"]] == [True, True, False]
    assert made["splits"] == as_json(scores)


def test_what_if_is_by_global_rank_from_the_worst(what_if: WhatIfReport, trace: Trace, found: Stragglers) -> None:
    made = json.loads(what_if.to_json())
    assert set(made["by_rank"]) == {str(rank) for rank in trace.rank.ravel()}
    for part in (made["by_rank"], made["by_op_type"], made["criticality"]["by_rank"]):
        assert list(part.values()) == sorted(part.values(), reverse=True)
    for (replica, stage), rank in np.ndenumerate(trace.rank):
        assert made["by_rank"][str(rank)] == found.by_worker[replica, stage]
    assert str(made["worst_ranks"][0]) == next(iter(made["by_rank"]))
    assert sum(made["criticality"]["by_op_type"].values()) == pytest.approx(1.0)
    assert made["recorded_s"] / made["ideal_s"] == pytest.approx(made["S"])
    base, slower = made["changes"].values()
    assert slower == {name: pytest.approx(1.1 * value) for name, value in base.items()}


# --- Pages -----------------------------------------------------------------------------------------------------------


def test_info_names_job_steps_and_operations(trace: Trace) -> None:
    report = TraceInfoReport(trace_facts(trace))
    assert report.card().title == "synthetic: 6 ranks, dp 3 x pp 2"
    assert report.card().verdict.startswith("16 steps between 10 and 25 recorded: median ")
    table = next(one for one in report.page().blocks if isinstance(one, Table))
    assert [row[0] for row in table.rows] == list(report.info.op_types or ())
    one = TraceInfoReport(trace_facts(trace.choose(steps=np.array([3]))))
    assert one.card().verdict.startswith("1 step, number 13 recorded: median ")
    assert TraceInfoReport(trace_facts(LOG)).card().title == "a run: step times of a log, no operations"
    assert shown(TraceInfoReport(trace_facts(LOG))).endswith("note: a note")


def test_replay_says_whether_the_schedule_explains_the_steps(trace: Trace) -> None:
    report = replayed(trace)
    assert report.card().tone == "good"
    assert f"off by {percent(report.replay.median_abs_error)} (median)" in report.card().verdict
    far = replace(report, replay=replace(report.replay, median_abs_error=0.3))
    assert (far.card().tone, "DOES NOT EXPLAIN" in far.card().verdict) == ("unsure", True)


def test_predictions_show_quantiles_with_their_error(
    trace: Trace, job: RecordedJob, prediction: TracePrediction, scores: list[SplitScore]
) -> None:
    report = predicted(trace, prediction, scores[:1], evidence=evidence_facts(job))
    text = shown(report)
    rows = next(one for one in report.blocks() if isinstance(one, Table)).rows
    assert rows[1][:2] == ("p95", time_with_error(prediction.quantile(0.95), prediction.mc_error(0.95)))
    low, high = prediction.interval(0.95)
    assert rows[1][2] == f"{low:.2f} to {high:.2f} s"
    assert report.card().facts["p95"].endswith(f"(90%: {rows[1][2]})")
    assert "Check: fitted on 8 steps, 8 steps predicted" in text
    assert report.card().facts["check"] == "8 held-out steps: p95 -4.0% off, in its interval"
    last = predicted(trace, prediction, scores[2:], evidence=evidence_facts(job))
    assert last.card().facts["check"] == "8 held-out steps: p95 +10% off, OUTSIDE its interval"
    assert "micro-batch, shared by forward and backward on all stages" in text
    assert "rank, persistent" in text


def test_predictions_say_how_many_splits_and_what_was_asked_for(
    trace: Trace, job: RecordedJob, prediction: TracePrediction, scores: list[SplitScore]
) -> None:
    more = {"asked": PredictedJobChange(1000, 16), "fit_replicas": 2, "evidence": evidence_facts(job)}
    report = predicted(trace, prediction, scores, **more)
    assert "with 1,000 data-parallel replicas and 16 micro-batches per replica" in report.card().title
    assert "Check: fitted on 8 steps of 2 replicas, 8 steps predicted, mean of 3 splits" in shown(report)
    assert report.card().facts["check"].endswith("in its interval in 67% of 3 splits")


def test_calibration_is_told_where_it_can_be_seen(trace: Trace, job: RecordedJob, prediction: TracePrediction) -> None:
    def text(agreement: MomentMatch) -> str:
        return shown(predicted(trace, prediction, evidence=evidence_facts(replace(job, agreement=agreement))))

    assert "mean x 0.950, spread x 1.200, to match the recorded steps" in text(MomentMatch(0.95, 1.2))
    assert "match the recorded" not in text(MomentMatch(1.0004, 0.9996))


def test_predictions_from_a_log_have_no_evidence(prediction: TracePrediction) -> None:
    text = shown(predicted(LOG, prediction))
    assert "variance" not in text.lower()
    assert "Check" not in text


def test_jobs_without_micro_batches_are_not_said_to_have_any(prediction: TracePrediction) -> None:
    trace = trace_at(Path(__file__).parents[2] / "data" / "kineto_gloo")
    text = shown(predicted(trace, prediction, evidence=evidence_facts(fit_job(trace))))
    assert "step of a replica, shared by its compute" in text
    assert "micro-batch" not in text


def test_what_if_names_the_worst_and_what_changes_bring(what_if: WhatIfReport) -> None:
    card = what_if.card()
    assert f"slowdown S = {what_if.slowdown:.3f}" in card.verdict
    share = percent(what_if.worst_workers_share or 0.0)
    assert card.facts["blame"].startswith(f"worst worker (rank {what_if.worst_ranks[0]}) {share} of the loss")
    assert card.facts["best change"] == "none of those tried lowers the p95"
    first = what_if.blocks()[0]
    assert isinstance(first, Table)
    assert [cell.count("(+10.0%)") for cell in first.rows[1]] == [0, 1, 1, 1]
    text = shown(what_if)
    assert "warning: 16 recorded steps cannot show a p95 or p99" in text
    assert FAR_OFF not in text


def test_the_best_change_is_the_one_with_the_smallest_p95(what_if: WhatIfReport) -> None:
    base = what_if.changes["as recorded"]
    changes = {"as recorded": base, **{f"x {f}": Quantiles(base.p50, f * base.p95, base.p99) for f in (0.9, 0.8, 1.2)}}
    assert replace(what_if, changes=changes).card().facts["best change"] == "x 0.8: p95 -20%"


def test_many_workers_are_ranked_from_the_top_only(what_if: WhatIfReport) -> None:
    by_rank = {str(rank): 2.0 - rank / 1000 for rank in range(500)}
    report = replace(what_if, by_rank=by_rank, worst_ranks=tuple(range(15)))
    assert "(the first 8 of 500)" in shown(report)
    assert report.card().facts["blame"].startswith("worst 15 workers (ranks 0, 1, 2, 3, 4, 5, 6, 7 and 7 more) ")


def test_jobs_that_lose_nothing_are_said_to(what_if: WhatIfReport) -> None:
    report = replace(what_if, slowdown=1.0, worst_workers_share=None, last_stage_share=None)
    assert report.card().verdict.startswith("Nothing is lost to stragglers")
    shown(report)


def test_steps_that_the_rules_replay_badly_are_pointed_out(trace: Trace, found: Stragglers, job: RecordedJob) -> None:
    far = replace(found, recorded_s=0.5 * found.recorded_s)
    changes = {"as recorded": TracePrediction(np.ones((2, 2)))}
    made = what_if_report(trace, far, trace_criticality(job), changes, RECORD)
    assert "rules of the schedule explain" in made.card().facts["warning"]
    assert FAR_OFF in shown(made)
    some = replace(made, info=trace_facts(trace.choose(replicas=np.array([0]))))
    assert "4 workers that were not recorded" in some.card().facts["warning"]


def test_notes_reach_the_reader_of_every_report(trace: Trace, what_if: WhatIfReport) -> None:
    noted = trace_facts(replace(trace, notes=("the clocks disagree",)))
    for report in (TraceInfoReport(noted), replace(replayed(trace), info=noted), replace(what_if, info=noted)):
        assert report.lines()[-1] == "note: the clocks disagree"
        assert report.page().n_notes >= 1


# --- Pictures of stored reports --------------------------------------------------------------------------------------


def test_stored_answers_are_drawn_as_new_ones(trace: Trace, what_if: WhatIfReport, found: Stragglers) -> None:
    again = WhatIfReport.from_dict(json.loads(what_if.to_json()))
    ax = again.figure().axes[0]
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), found.by_worker.T)
    assert f": S = {what_if.slowdown:.3f}" in ax.get_title(loc="left")
    with pytest.raises(DataError, match="older version"):
        replace(what_if, ranks=None).figure()


def test_stored_predictions_keep_their_curves(prediction: TracePrediction) -> None:
    curves = PredictedCurves(predicted_curve(prediction, LOG.step_s))
    report = predicted(LOG, prediction, curves=curves)
    again = TracePredictionReport.from_dict(json.loads(report.to_json()))
    assert again == report
    middle = np.interp(0.5, curves.fitted.level, curves.fitted.middle_s)
    assert middle == pytest.approx(prediction.quantile(0.5), rel=1e-3)
    assert len(again.figure().axes) == 1
    with pytest.raises(DataError, match="older version"):
        replace(report, curves=None).figure()
