"""Results on recorded jobs as lines of plain text. Take the objects of `trace_summary`."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from .quantity import bar, with_error

BAR_WIDTH = 24
MOST = 8  # lines of a ranking
SMALLEST_SHARE = 0.001
FAR = 0.05  # of the step
Summary = Mapping[str, Any]


def info_lines(info: Summary) -> list[str]:
    """What a trace or log holds."""
    lines = _headline(info) + _step_lines(info)
    if "op_types" in info:
        lines += ["", "ops per replica and step, recorded seconds (waiting included)"]
        for name, facts in info["op_types"].items():
            lines.append(
                f"  {name:<28} {facts['ops_per_step']:>6,}   median {facts['median_s']:.4g} s, longest {facts['max_s']:.4g} s"
            )
    return lines + _notes(info)


def _notes(info: Summary) -> list[str]:
    return [f"note: {note}" for note in info["notes"]]


def _headline(info: Summary) -> list[str]:
    if "job" not in info:
        return [f"{info['name']}: step times of a log, no ops ({info['source']})"]
    job = info["job"]
    axes = " x ".join(f"{axis} {job[axis]}" for axis in ("dp", "pp", "tp", "sp") if job[axis] > 1) or "one rank"
    chunks = f", {job['virtual_stages']} chunks per stage" if job["virtual_stages"] > 1 else ""
    return [
        f"{job['name']}: {job['world_size']:,} ranks, {axes}{chunks}",
        f"{job['n_recorded_workers']:,} recorded workers, {job['n_ops_per_replica']:,} ops per replica and step",
    ]


def _step_lines(info: Summary) -> list[str]:
    times = info["step_s"]
    return [f"{_steps(info)}: p50 {times['p50']:.4g} s, p95 {times['p95']:.4g} s, CV {times['cv']:.2%}"]


def _steps(info: Summary) -> str:
    if info["n_steps"] == 1:
        return f"1 step, number {info['first_step']:,}"
    return f"{info['n_steps']:,} steps between {info['first_step']:,} and {info['last_step']:,}"


def replay_lines(info: Summary, replayed: Summary) -> list[str]:
    """How well the dependencies explain the recorded steps."""
    return [
        *_headline(info),
        *_step_lines(info),
        "replay of the recorded durations, median absolute error of the step",
        f"  by the rules of the schedule      {replayed['median_abs_error']:.3%}",
        f"  with waits read off the recording {replayed['with_observed_waits']['median_abs_error']:.3%}",
        f"  with host gaps as well            {replayed['with_host_gaps']['median_abs_error']:.3%}",
        *_notes(info),
    ]


def predict_lines(info: Summary, summary: Summary) -> list[str]:
    """The predicted distribution, why it is so, and how predictions fared on steps that were held out."""
    lines = [*_headline(info), *_step_lines(info), "", f"unrecorded steps{_asked(summary['asked'])}"]
    steps = summary["steps_s"]
    for name in ("p50", "p95", "p99"):
        low, high = steps["interval"][name]
        value, error = with_error(steps[name], steps["mc_error"][name])
        known = f"{low:.4g} to {high:.4g} s at {steps['level']:.0%}, from {_counted(info['n_steps'], 'recorded step')}"
        lines.append(f"  {name}   {value} ± {error} s   ({known})")
    if summary.get("evidence"):
        lines += ["", *_evidence(summary["evidence"])]
    if summary.get("n_test"):
        lines += ["", *_score(summary)]
    return lines + _unreplayed(summary) + _notes(info)


def _unreplayed(summary: Summary) -> list[str]:
    """A warning where not even work and gaps together give the recorded steps."""
    error = summary["replay"]["with_host_gaps"]["median_abs_error"] if "replay" in summary else 0.0
    if error < FAR:
        return []
    return [
        f"warning: recorded work and gaps, replayed, are {error:.0%} off the recorded steps: ops of one stream overlap, or "
        "clocks disagree. Do not trust these figures."
    ]


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _asked(asked: Summary) -> str:
    words = {"n_replica": "data-parallel replicas", "n_micro_batch": "micro-batches per replica"}
    parts = [f"{asked[name]:,} {word}" for name, word in words.items() if asked[name]]
    return f" with {' and '.join(parts)}" if parts else ""


WORDS = {
    "micro_batch": "micro-batch, shared by forward and backward on all stages",
    "replica": "step of a replica, shared by its compute",
    "step": "step, shared by all compute",
    "rank": "rank, persistent",
    "position": "position of the micro-batch in the step",
    "own": "single op",
}


def _evidence(evidence: Summary) -> list[str]:
    lines = []
    shares = sorted(evidence["variance_shares"].items(), key=lambda item: -item[1])
    unit = "micro_batch" if evidence["has_micro_batches"] else "replica"
    if shares:
        lines.append("what explains the variance of compute")
        lines += [
            f"  {share:>6.1%}  {bar(share, BAR_WIDTH)} {WORDS[unit if name == 'micro_batch' else name]}"
            for name, share in shares
            if share >= SMALLEST_SHARE
        ]
        lines += [f"          {text}" for text in _strata(evidence["strata"], unit)]
        lines += _shape(evidence["shape"], unit)
        lines.append(
            f"  evidence: p = {evidence['p_values']['step']:.2g} for a step effect, {evidence['p_values']['rank']:.2g} for ranks"
        )
    else:
        lines.append("no compute that belongs to micro-batches: recorded steps are redrawn as they were")
    lines += _agreement(evidence["agreement"])
    if evidence["observed_waits"]:
        lines.append(
            f"  {_counted(len(evidence['observed_waits']), 'wait')} read off the recording, e.g. {evidence['observed_waits'][-1]}"
        )
    if evidence["unexplained_waits"]:
        lines.append(
            f"  {_counted(evidence['unexplained_waits'], 'gap')} of workers taken for waits for something that was not recorded"
        )
    return lines


def _shape(shape: Summary, unit: str) -> list[str]:
    scores = sorted(shape["held_out_log_density"].items(), key=lambda item: -item[1])
    if not scores:
        return []
    listed = ", ".join(f"{name.replace('_', ' ')} {score:.3f}" for name, score in scores)
    chosen = "recorded pool" if shape["chosen"] == "pool" else shape["chosen"].replace("_", " ")
    what = {"micro_batch": "micro-batch factor", "replica": "factor of a replica's step"}[unit]
    return [f"  {what}: {chosen} (held-out log density: {listed})"]


def _agreement(agreement: Mapping[str, float]) -> list[str]:
    """What drawn steps were multiplied by; nothing where it is not seen in three digits."""
    if max(abs(agreement["mean"] - 1.0), abs(agreement["spread"] - 1.0)) < SMALLEST_SHARE:
        return []
    return [
        f"  calibrated on the recorded steps: mean x {agreement['mean']:.3f}, spread x {agreement['spread']:.3f}, "
        "for something shared that is not in the model"
    ]


def _strata(strata: Mapping[str, float], unit: str) -> list[str]:
    words = {"replica": "means of a replica's step", "step": "means of a step"}
    independent = {"micro_batch": "micro-batches", "replica": "replicas"}[unit]
    return [
        f"{words[name]} vary {ratio:.2f} times as much as independent {independent} would make them"
        for name, ratio in strata.items()
        if abs(ratio - 1.0) > 0.05
    ]


def _score(summary: Summary) -> list[str]:
    n_split = len(summary.get("splits", [0]))
    over = f", mean of {n_split} splits" if n_split > 1 else ""
    measured, predicted = summary["measured_s"], summary["predicted_s"]
    low, high = summary["p95_interval_s"]
    covered = summary["p95_covered"]
    verdict = f"covered in {covered:.0%} of splits" if n_split > 1 else "covers it" if covered else "does not cover it"
    lines = [
        f"check: fitted on {summary['n_train']:,} steps{_fitted(summary)}, {summary['n_test']:,} steps predicted{over}",
        f"  p50   measured {measured['p50']:.4g} s, predicted {predicted['p50']:.4g} s",
        f"  p95   measured {measured['p95']:.4g} s, predicted {predicted['p95']:.4g} s ({summary['p95_error']:+.2%}); "
        f"90% interval {low:.4g} to {high:.4g} s {verdict}",
        f"  KS distance {summary['ks_distance']:.3f}; of the fitted steps themselves {summary['ks_floor']:.3f}",
    ]
    lines += [
        f"  simpler: {way}: p95 {answer['p95_error']:+.2%}, KS {answer['ks_distance']:.3f}"
        for way, answer in summary["naive"].items()
    ]
    return lines


def _fitted(summary: Summary) -> str:
    return f" of {summary['fit_replicas']} replicas" if summary.get("fit_replicas") else ""


def what_if_lines(info: Summary, summary: Summary) -> list[str]:
    """Who slowed the job down, and what a change would bring."""
    lines = [
        *_headline(info),
        f"slowdown S = {summary['S']:.5f}: without host gaps the mean step takes {summary['recorded_s']:.4g} s, "
        f"without stragglers {summary['ideal_s']:.4g} s",
        *_replayed(info, summary),
        _blame(summary),
        "",
        *_ranking("slowdown by op type", summary["by_op_type"], ""),
        *_ranking("slowdown by stage", summary["by_stage"], "stage "),
        *_ranking("slowdown by rank", summary["by_rank"], "rank "),
        "",
        "critical path of the recorded steps",
    ]
    shares = [(n, v) for n, v in summary["criticality"]["by_op_type"].items() if v >= SMALLEST_SHARE][:MOST]
    lines += [f"  {value:>6.1%}  {bar(value, BAR_WIDTH)} {name}" for name, value in shares]
    return lines + ["", *_changes(summary["changes"]), *_notes(info)]


def _replayed(info: Summary, summary: Summary) -> list[str]:
    """A warning where replay by the rules is far from what was recorded."""
    mean_s, job = info["step_s"]["mean"], info["job"]
    if abs(summary["recorded_s"] / mean_s - 1.0) < FAR:
        return []
    n_absent = job["dp"] * job["pp"] - job["n_recorded_workers"]
    why = "the rules of the schedule explain these steps badly (`trace replay`)"
    if n_absent > 0:
        why = f"the wait for the {n_absent:,} workers that were not recorded is left out"
    return [f"  recorded were {mean_s:.4g} s: {why}, so take care"]


def _blame(summary: Summary) -> str:
    if isnan(summary["M_W"]) or isnan(summary["M_S"]):
        return "  nothing is lost to stragglers"
    ranks = summary["worst_ranks"]
    named = ", ".join(map(str, ranks[:MOST])) + (", ..." if len(ranks) > MOST else "")
    who = f"worker (rank {named}) accounts" if len(ranks) == 1 else f"{len(ranks):,} workers (ranks {named}) account"
    return f"  the worst {who} for {summary['M_W']:.1%} of the loss, the last stage for {summary['M_S']:.1%}"


def _ranking(title: str, values: Mapping[str, float], prefix: str) -> list[str]:
    shown = list(values.items())[:MOST]
    more = f", {len(values) - len(shown)} more" if len(values) > len(shown) else ""
    return [
        title,
        *(f"  {value:.4f}  {prefix}{name}" for name, value in shown),
        *([f"  ...{more[1:]}"] if more else []),
    ]


def _changes(changes: Mapping[str, Mapping[str, float]]) -> list[str]:
    (now, base), *others = changes.items()
    lines = [f"unrecorded steps {now}: p50 {base['p50']:.4g} s, p95 {base['p95']:.4g} s, p99 {base['p99']:.4g} s"]
    for what, times in others:
        parts = ", ".join(
            f"{name} {times[name]:.4g} s ({times[name] / base[name] - 1:+.1%})" for name in ("p50", "p95", "p99")
        )
        lines.append(f"  {what}: {parts}")
    return lines
