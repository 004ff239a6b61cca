"""Tells transfer from waiting in recorded communication by Otsu's threshold, in place of the latest start among the peers.

Of all communication of one type and stage the threshold t splits recorded durations into short ones, taken to be transfer alone,
and long ones, taken to hold a wait: it maximises n0 n1 (mean0 - mean1)^2. The transfer of a long one is a short one, drawn.

Source: Otsu, "A Threshold Selection Method from Gray-Level Histograms", 1979; for bubbles of pipelines PRISM, arXiv 2510.15596.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prism_jax.core.arrays import Floats
from prism_jax.recorded.recorded_job import RecordedJob
from prism_jax.trace.level_changes import otsu_split


def otsu_threshold(values: Floats) -> float:
    """Largest value of the lower class, of the split with most variance between classes; the only value if there is one."""
    ordered = np.sort(values, axis=None)
    return float(ordered[-1] if ordered[0] == ordered[-1] else ordered[otsu_split(ordered) - 1])


def with_otsu_split(job: RecordedJob, seed: int, log: bool) -> RecordedJob:
    """`job` with transfers by Otsu's threshold; of the logarithm of durations if `log`."""
    trace, needs = job.trace, job.waits.needs
    recorded_s, run_s = trace.end_s - trace.start_s, job.run_s.copy()
    rng = np.random.default_rng(seed)
    pools: dict[tuple[str, int], list[int]] = {}
    for index, op in enumerate(trace.ops):
        if needs.group[index] >= 0 and not needs.hidden_meeting[index]:
            pools.setdefault((op.op_type, op.stage), []).append(index)
    for ops in pools.values():
        seconds = recorded_s[ops]
        scale = np.log(np.maximum(seconds, 1e-9)) if log else seconds
        short = scale <= otsu_threshold(scale)
        run_s[ops] = np.where(short, seconds, rng.choice(seconds[short], size=seconds.shape))
    return replace(job, run_s=run_s)


def long_share(job: RecordedJob, log: bool) -> float:
    """Share of communication that the threshold takes to hold a wait."""
    trace, needs = job.trace, job.waits.needs
    seconds = trace.end_s - trace.start_s
    n_long = n = 0
    for kind in {(op.op_type, op.stage) for op, group in zip(trace.ops, needs.group, strict=True) if group >= 0}:
        ops = [i for i, op in enumerate(trace.ops) if (op.op_type, op.stage) == kind and needs.group[i] >= 0]
        scale = np.log(np.maximum(seconds[ops], 1e-9)) if log else seconds[ops]
        n_long, n = n_long + int((scale > otsu_threshold(scale)).sum()), n + scale.size
    return n_long / n
