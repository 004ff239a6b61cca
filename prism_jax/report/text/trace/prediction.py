"""The steps that were not recorded, as lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping

from ....recorded.score import MomentMatch
from ...quantity import bar, with_error
from ...types.trace_prediction import Asked, CheckFacts, EvidenceFacts, ShapeFacts, TracePredictionReport
from .shared import BAR_WIDTH, FAR, SMALLEST_SHARE, counted, headline, notes, step_lines, warnings


def lines(report: TracePredictionReport) -> list[str]:
    """The predicted distribution, why it is so, and how predictions fared on steps that were held out."""
    info, steps = report.info, report.steps_s
    lines = [*headline(info), *step_lines(info), "", f"unrecorded steps{_asked(report.asked)}"]
    for name in ("p50", "p95", "p99"):
        low, high = getattr(steps.interval, name)
        value, error = with_error(getattr(steps, name), getattr(steps.mc_error, name))
        known = f"{low:.4g} to {high:.4g} s at {steps.level:.0%}, from {counted(info.n_steps, 'recorded step')}"
        lines.append(f"  {name}   {value} ± {error} s   ({known})")
    lines += warnings(report.doubts)
    if _of_whole_steps(report):
        lines += ["whole recorded steps are redrawn, as nothing within a step can be recombined"]
    if report.evidence is not None:
        lines += ["", *_evidence(report.evidence)]
    if report.check is not None:
        lines += ["", *_check(report, report.check)]
    return lines + _unreplayed(report) + notes(info)


def _unreplayed(report: TracePredictionReport) -> list[str]:
    """A warning where not even work and gaps together give the recorded steps, and what it is about."""
    error = 0.0 if report.replay is None else report.replay.with_host_gaps.median_abs_error
    if error < FAR:
        return []
    wrong = (
        "what-if and --replicas; the figures above are of whole steps" if _of_whole_steps(report) else "these figures"
    )
    return [
        f"warning: replaying the recorded work and gaps misses the recorded steps by {error:.0%}: ops of one stream overlap, or "
        f"clocks disagree. Do not trust {wrong}."
    ]


def _of_whole_steps(report: TracePredictionReport) -> bool:
    """Whether drawn steps are recorded ones and not made of their parts."""
    return report.asked == Asked() and report.evidence is not None and not report.evidence.has_micro_batches


def _asked(asked: Asked) -> str:
    words = {"n_replica": "data-parallel replicas", "n_micro_batch": "micro-batches per replica"}
    wanted = {word: getattr(asked, name) for name, word in words.items()}
    parts = [f"{n:,} {word}" for word, n in wanted.items() if n]
    return f" with {' and '.join(parts)}" if parts else ""


WORDS = {
    "micro_batch": "micro-batch, shared by forward and backward on all stages",
    "replica": "step of a replica, shared by its compute",
    "step": "step, shared by all compute",
    "rank": "rank, persistent",
    "position": "position of the micro-batch in the step",
    "own": "single op",
}


def _evidence(evidence: EvidenceFacts) -> list[str]:
    lines = []
    shares = sorted(evidence.variance_shares.items(), key=lambda item: -item[1])
    unit = "micro_batch" if evidence.has_micro_batches else "replica"
    if shares:
        lines.append("compute-time variance by cause")
        lines += [
            f"  {share:>6.1%}  {bar(share, BAR_WIDTH)} {WORDS[unit if name == 'micro_batch' else name]}"
            for name, share in shares
            if share >= SMALLEST_SHARE
        ]
        lines += [f"          {text}" for text in _strata(evidence.strata, unit)]
        lines += _shape(evidence.shape, unit)
        lines.append(
            f"  evidence: p = {evidence.p_values['step']:.2g} for a step effect, {evidence.p_values['rank']:.2g} for ranks"
        )
    lines += _agreement(evidence.agreement)
    if evidence.observed_waits:
        lines.append(
            f"  {counted(len(evidence.observed_waits), 'wait')} inferred from the recording, e.g. {evidence.observed_waits[-1]}"
        )
    if evidence.unexplained_waits:
        lines.append(
            f"  {counted(evidence.unexplained_waits, 'gap')} of workers treated as waits for events that were not recorded"
        )
    return lines


def _shape(shape: ShapeFacts, unit: str) -> list[str]:
    if shape.chosen is None or not shape.held_out_log_density:
        return []
    scores = sorted(shape.held_out_log_density.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{name.replace('_', ' ')} {score:.3f}" for name, score in scores)
    chosen = "recorded pool" if shape.chosen == "pool" else shape.chosen.replace("_", " ")
    what = {"micro_batch": "micro-batch factor", "replica": "factor of a replica's step"}[unit]
    return [f"  {what}: {chosen} (held-out log density: {listed})"]


def _agreement(agreement: MomentMatch) -> list[str]:
    """What drawn steps were multiplied by; nothing where it is not seen in three digits."""
    if max(abs(agreement.mean - 1.0), abs(agreement.spread - 1.0)) < SMALLEST_SHARE:
        return []
    return [
        f"  adjusted to match the recorded steps: mean x {agreement.mean:.3f}, spread x {agreement.spread:.3f} "
        "(shared effects that the model does not contain)"
    ]


def _strata(strata: Mapping[str, float], unit: str) -> list[str]:
    words = {"replica": "the means of a replica's step", "step": "the means of a step"}
    independent = {"micro_batch": "micro-batches", "replica": "replicas"}[unit]
    return [
        f"variance of {words[name]}: {ratio:.2f} times that of independent {independent}"
        for name, ratio in strata.items()
        if abs(ratio - 1.0) > 0.05
    ]


def _check(report: TracePredictionReport, check: CheckFacts) -> list[str]:
    """How predictions fared on steps that were held out."""
    n_split, score = len(check.splits or (0,)), check.score
    over = f", mean of {n_split} splits" if n_split > 1 else ""
    measured, predicted = score.measured_s, score.predicted_s
    low, high = score.p95_interval_s
    covered = score.p95_covered
    once = f"{'contains' if covered else 'does not contain'} the measured p95"
    verdict = f"contains it in {covered:.0%} of splits" if n_split > 1 else once
    lines = [
        f"check: fitted on {report.n_train:,} steps{_fitted(report)}, {report.n_test:,} steps predicted{over}",
        f"  p50   measured {measured.p50:.4g} s, predicted {predicted.p50:.4g} s",
        f"  p95   measured {measured.p95:.4g} s, predicted {predicted.p95:.4g} s ({score.p95_error:+.2%}); "
        f"90% interval {low:.4g} to {high:.4g} s {verdict}",
        f"  KS distance to the held-out steps {score.ks_distance:.3f}; fitted steps alone {score.ks_floor:.3f}",
    ]
    lines += [
        f"  baseline {way}: p95 {answer.p95_error:+.2%}, KS {answer.ks_distance:.3f}"
        for way, answer in score.naive.items()
    ]
    return lines


def _fitted(report: TracePredictionReport) -> str:
    return f" of {report.fit_replicas} replicas" if report.fit_replicas else ""
