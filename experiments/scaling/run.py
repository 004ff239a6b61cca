"""Where do more GPUs stop paying? Weak and strong scaling of three models on four generations, from 8 to 65,536 GPUs.

python experiments/scaling/run.py [--workers 2] [--resume FILE] [--csv FILE] [--check]

Prints, per series, throughput per GPU over that of 8 GPUs, the size that stops paying, where communication shows, and p95 over
p50; then the statements of Fernandez et al. (arXiv 2411.13055) beside what the model says.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from experiments.common import check, start
from experiments.scaling.jobs import CLUSTERS, MODELS, MODES, SIZES, ScalingTask, job_of, tasks
from prism_jax.core.executor import Workers
from prism_jax.core.write_file import write_text
from prism_jax.study.figures import JobFigures
from prism_jax.study.run_grid import StudyRequest, run_study
from prism_jax.study.scaling import Mode, SizeRow, knee, size_rows, stop_size

EXPECTED = Path(__file__).with_name("expected.json")
N_SAMPLES = 512  # means and p95 are known to a few 1e-4
SHOWN = (8, 128, 2048, 65536)  # GPUs
TOLERANCES = {"change_2048": 0.01, "change_65536": 0.01, "tail_2048": 0.003}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true", help=f"write {EXPECTED.name}")
    given = parser.parse_args()
    start()
    began = time.perf_counter()
    found = run_study(
        tasks(), job_of, StudyRequest("mean", n_samples=N_SAMPLES), resume=given.resume, workers=Workers(given.workers)
    )
    elapsed_s = time.perf_counter() - began
    figures = {own.task: own.figures for own in found}
    print(f"{'series':44} {'per GPU, over 8 GPUs':>30}   stops at   shows at   p95/p50 at 2,048")
    known: dict[str, dict[str, float]] = {}
    for cluster in CLUSTERS:
        for model in MODELS:
            for mode in MODES:
                rows = _rows(figures, cluster, model, mode)
                name = f"{model} on {cluster}, {mode}"
                known[name] = _line(name, rows)
    possible = sum(own is not None for own in figures.values())
    print(f"{possible} of {len(figures)} jobs possible; {elapsed_s:.0f} s with {given.workers} processes")
    if given.csv:
        write_text(given.csv, _csv(figures))
    if given.update:
        write_text(EXPECTED, json.dumps(known, indent=1) + "\n")
    return check(known, EXPECTED, TOLERANCES) if given.check else 0


def _rows(figures: dict[ScalingTask, JobFigures | None], cluster: str, model: str, mode: Mode) -> tuple[SizeRow, ...]:
    own = [figures[ScalingTask(cluster, model, mode, n)] for n in SIZES]
    return size_rows(SIZES, [({}, one, "" if one else "impossible") for one in own])


def _line(name: str, rows: tuple[SizeRow, ...]) -> dict[str, float]:
    by_size = {row.n_devices: row for row in rows if row.figures}
    changes = " ".join(f"{100 * by_size[n].per_gpu_change:+6.1f}%" if n in by_size else "      -" for n in SHOWN)
    shows = knee(SIZES, [row.figures for row in rows])
    at = by_size.get(2048)
    tail = at.figures.p95_s / at.figures.p50_s if at and at.figures else float("nan")
    print(f"{name:44} {changes}   {stop_size(rows) or '-':>8}   {shows or '-':>8}   {tail:.3f}")
    found = {f"change_{n}": by_size[n].per_gpu_change for n in (2048, 65536) if n in by_size}
    return found | ({"tail_2048": tail} if at else {})


def _csv(figures: dict[ScalingTask, JobFigures | None]) -> str:
    names = list(JobFigures.__dataclass_fields__)
    lines = [",".join(("cluster", "model", "mode", "gpus", *names))]
    for task, own in figures.items():
        values = [f"{getattr(own, name):.9g}" for name in names] if own else ["" for _ in names]
        lines.append(",".join((task.cluster, task.model, task.mode, str(task.n_devices), *values)))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
