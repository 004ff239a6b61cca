"""Results on recorded jobs as plain objects, which is what `--json` prints. Times in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import Floats
from ..recorded.prediction import TracePrediction
from ..recorded.recorded_job import RecordedJob
from ..recorded.score import LEVEL, SplitScore, mean_of_splits
from ..recorded.trace.step_log import StepLog
from ..recorded.trace.trace import Trace

if TYPE_CHECKING:
    from ..explain.types import Stragglers, TraceCriticality

WARM_UP = 2.0  # times the median step
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def info_dict(recorded: Trace | StepLog) -> dict[str, Any]:
    """What was recorded."""
    step_s = recorded.step_s
    times = {name: float(np.quantile(step_s, p)) for name, p in QUANTILES.items()}
    base: dict[str, Any] = {
        "source": recorded.source,
        "n_steps": len(step_s),
        "first_step": int(recorded.steps[0]),
        "last_step": int(recorded.steps[-1]),
        "step_s": {**times, "mean": float(step_s.mean()), "cv": float(step_s.std() / step_s.mean())},
        "notes": [*recorded.notes, *_warm_up(step_s), *_means(recorded)],
    }
    if isinstance(recorded, StepLog):
        return {"kind": "step log", "name": recorded.name, **base}
    return {"kind": "trace", "job": job_dict(recorded), **base, "op_types": _op_types(recorded)}


def _warm_up(step_s: Floats) -> list[str]:
    """A first step that is no step like the others; predictions would repeat it."""
    ratio = float(step_s[0] / np.median(step_s))
    if len(step_s) < 3 or ratio < WARM_UP:
        return []
    return [f"the first recorded step takes {ratio:.3g} times the median: if it is a warm-up, leave it out of the file"]


def _means(recorded: Trace | StepLog) -> list[str]:
    longest = int(recorded.n_steps.max()) if isinstance(recorded, StepLog) else 1
    if longest == 1:
        return []
    return [
        f"times are means over up to {longest:,} steps, and so are those that are predicted; single steps scatter more"
    ]


def job_dict(trace: Trace) -> dict[str, Any]:
    """Degrees of the job and how much of it was recorded."""
    return {
        **asdict(trace.job),
        "world_size": trace.job.world_size,
        "n_recorded_workers": trace.n_replica * trace.n_stage,
        "n_ops_per_replica": len(trace.ops),
    }


def _op_types(trace: Trace) -> dict[str, dict[str, float]]:
    """Per op type how many ops a replica has in a step, and their recorded seconds, waiting included."""
    names = np.array([op.op_type for op in trace.ops])
    seconds = trace.end_s - trace.start_s
    return {
        str(name): {
            "ops_per_step": int((names == name).sum()),
            "median_s": float(np.median(seconds[names == name])),
            "max_s": float(seconds[names == name].max()),
        }
        for name in np.unique(names)
    }


def evidence_dict(job: RecordedJob) -> dict[str, Any]:
    """Which shared factors were found, and the waits that no rule states."""
    found = job.effects.evidence if job.effects else None
    return {
        "variance_shares": {}
        if found is None
        else {name: getattr(found, name) for name in ("position", "step", "rank", "micro_batch", "own")},
        "p_values": {} if found is None else {"step": found.step_p, "rank": found.rank_p},
        "strata": {} if found is None else {"replica": found.strata.replica, "step": found.strata.step},
        "shape": {}
        if found is None
        else {"chosen": found.shape.name, "held_out_log_density": dict(found.shape.scores)},
        "has_micro_batches": any(op.micro_batch >= 0 for op in job.trace.ops),
        "agreement": job.agreement._asdict(),
        "observed_waits": list(job.waits.found),
        "unexplained_waits": int(job.waits.unexplained.sum()),
    }


def prediction_dict(prediction: TracePrediction) -> dict[str, Any]:
    """The long-run distribution: quantiles, their interval from the few recorded steps, their Monte Carlo error."""
    return {
        **{name: prediction.quantile(p) for name, p in QUANTILES.items()},
        "interval": {name: prediction.interval(p, LEVEL) for name, p in QUANTILES.items()},
        "mc_error": {name: prediction.mc_error(p) for name, p in QUANTILES.items()},
        "level": LEVEL,
    }


def scores_dict(scores: Sequence[SplitScore]) -> dict[str, Any]:
    """Held-out scores: averages over splits, and the splits themselves if there are several."""
    mean = _score(mean_of_splits(scores))
    if len(scores) == 1:
        return mean
    errors = np.array([score.p95_error for score in scores])
    return {
        **mean,
        "p95_error_median": float(np.median(errors)),
        "p95_abs_error_median": float(np.median(np.abs(errors))),
        "ks_distance_median": float(np.median([score.ks_distance for score in scores])),
        "splits": [_score(asdict(score)) for score in scores],
    }


def _score(fields: Mapping[str, Any]) -> dict[str, Any]:
    measured = {name: fields["measured"][name] for name in ("p50", "p95")}
    naive = {way: {"p95_error": error, "ks_distance": ks} for way, (error, ks) in fields["naive"].items()}
    renamed = {"measured_s": measured, "predicted_s": fields["predicted"], "long_run_s": fields["long_run"]}
    kept = ("n_train", "n_test", "p95_covered", "p50_error", "p95_error", "ks_distance", "ks_floor")
    return {
        **{name: fields[name] for name in kept},
        **renamed,
        "p95_interval_s": fields["p95_interval"],
        "naive": naive,
    }


def what_if_dict(
    trace: Trace,
    found: Stragglers,
    critical: TraceCriticality,
    changes: Mapping[str, TracePrediction],
) -> dict[str, Any]:
    """Who slowed the job down, and what changes would bring. The first of `changes` is the job as it is."""
    rank = trace.rank
    return {
        "S": found.slowdown,
        "M_W": found.m_w,
        "M_S": found.m_s,
        "recorded_s": float(found.recorded_s.mean()),
        "ideal_s": float(found.ideal_s.mean()),
        "by_op_type": dict(found.by_op_type),
        "by_rank": _by_rank(rank, found.by_worker),
        "by_stage": dict(found.by_stage),
        "by_dp": dict(found.by_dp),
        "worst_ranks": [int(rank[cell]) for cell in found.worst],
        "criticality": {
            "by_op_type": dict(critical.by_op_type),
            "by_rank": _by_rank(rank, critical.by_worker),
        },
        "changes": {what: {name: p.quantile(q) for name, q in QUANTILES.items()} for what, p in changes.items()},
    }


def _by_rank(rank: np.ndarray, values: Floats) -> dict[str, float]:
    """Largest first."""
    order = np.argsort(-values, axis=None, kind="stable")
    return {str(int(rank.flat[i])): float(values.flat[i]) for i in order}
