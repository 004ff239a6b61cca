"""The noise-free step of a captured program against that of our own description, and what each of its parts takes.

Both run the same software: attention by separate products with one kernel for scale, mask and softmax; norms, rotary embeddings,
activations and the loss in one kernel each; the whole step is one program that no host paces; collectives block, as in the text.
"""

from __future__ import annotations

from dataclasses import replace

import jax

from experiments.capture.torch_transformers.parts import parts
from prism_jax import Job, predict
from prism_jax.framework.software import Software
from prism_jax.plan.plan import Overlap
from prism_jax.workload.captured.check import plan_fields
from prism_jax.workload.captured.fusion import fused
from prism_jax.workload.captured.model import CapturedModel
from prism_jax.workload.captured.program import CapturedOp, RankProgram, Repeat

SOFTWARE = Software(
    attention="fused_softmax",
    norm="fused",
    activation="fused",
    rope="fused",
    cross_entropy="fused",
    optimizer="fused",
    tuning="typical",
    compile=False,
    cuda_graphs="step",
)


PLAN = {
    "software": SOFTWARE,
    "overlap": Overlap(dp=False),
    "fused_grad_accumulation": True,
    "shard_copies": False,
    "grouped_queries": True,
}
"""Of a plan: gradients are written once, where they belong; parameters are gathered into the arrays that products read; queries
that share keys are one product, as the einsum of the example says."""


def captured_job(program: RankProgram, job: Job) -> Job:
    """The same with the captured program for a model."""
    known = {name: value for name, value in plan_fields(program).items() if name != "state_dtypes"}
    plan = replace(job.plan, **known, recompute="none")  # what runs again is among the rows
    return replace(job, model=CapturedModel(program), plan=plan, calibration=job.effective_calibration)


def step_s(job: Job) -> float:
    """Seconds of a step without variability."""
    return float(predict(job, key=jax.random.key(0), n_samples=64).quantile(0.5))


def in_layers(program: RankProgram, n_layers: int) -> RankProgram:
    """The program without the collectives of embedding and head, which XLA chooses otherwise: those that run less often."""
    one = fused(program.classes[0], program.fusion)
    kept = [index for index, (row, n) in enumerate(one.counted) if isinstance(row, CapturedOp) or n >= n_layers - 1]
    place = {old: new for new, old in enumerate(kept)} | {len(one.rows): len(kept)}
    at = [
        next(place[index] for index in range(start, len(one.rows) + 1) if index in place)
        for start in range(len(one.rows) + 1)
    ]
    rows = [one.rows[index] for index in kept]
    rows = [row if isinstance(row, CapturedOp) or row.wait is None else replace(row, wait=at[row.wait]) for row in rows]
    repeats = tuple(Repeat(at[each.start], at[each.stop], each.times) for each in one.repeats)
    return replace(program, fusion="eager", classes=(replace(one, rows=tuple(rows), repeats=repeats),))


def show(own: Job, other: Job) -> None:
    """Milliseconds by kind, of our description and of the capture, that differ by more than a thousandth of the step."""
    mine, theirs = parts(own), parts(other)
    whole = sum(mine.values())
    for kind in sorted(set(mine) | set(theirs)):
        one, two = 1e3 * mine[kind], 1e3 * theirs[kind]
        mark = f"{(two - one) / (10 * whole):+7.2f} %" if abs(two - one) > whole else ""
        print(f"    {kind:<36} described {one:>10.2f} ms, captured {two:>10.2f} ms {mark}")
