"""Steps of the examples on one GPU: captured without one and predicted, against what `measure.py` found on it.

    python experiments/capture/measured_gpu/run.py [measured.json]

Captures are those of `prism-jax capture examples/capture/NAME.py:build --fusion eager`, and of the programs that XLA
compiled where `measure_jax.py` ran.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

from experiments.common import start
from prism_jax import CapturedModel, Job, ParallelPlan, presets, read_capture
from prism_jax.app.predict import explain_step
from prism_jax.software.choices import Software
from prism_jax.system import catalog
from prism_jax.workload.captured.plan_fields import plan_fields

HERE = Path(__file__).resolve().parent
WAYS = {"eager": ("eager", Software(compile=False)), "compiled": ("inductor", Software(compile=True))}
DEVICES = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100-sxm"}
COLUMNS = ("measured", "p95/p50", "kernels", "predicted", "error", "90 % of models", "GPU active", "error", "host")


def job_of(name: str, way: str, device: str) -> Job:
    """An example on one device."""
    fusion, software = WAYS[way]
    program = read_capture(HERE / "captures" / f"{name}.capture.gz")
    program = program if program.source == "hlo" else replace(program, fusion=fusion)  # fused already
    known = {field: value for field, value in plan_fields(program).items() if field != "state_dtypes"}
    plan = ParallelPlan(**known, software=software)
    cluster = catalog.default_cluster(device, 1)
    return Job(
        name=name,
        model=CapturedModel(program),
        cluster=cluster,
        plan=plan,
        variability=presets.variability("h100-default"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="?", default=HERE / "measured.json")
    asked = parser.parse_args()
    start()
    measured = json.loads(asked.measured.read_text(encoding="utf-8"))
    print(f"{measured['gpu']}, torch {measured['torch']}; milliseconds")
    print(f"{'step':<18}" + "".join(f"{column:>16}" for column in COLUMNS))
    for step, found in measured["steps"].items():
        name, way = step.split()
        told = explain_step(job_of(name, way, DEVICES[measured["gpu"]]))
        p50, band = told.step_time_s.p50, told.model_band_s
        kernels_s = found.get("kernels_s", math.nan)
        cells = (
            f"{1e3 * found['p50_s']:.2f}",
            f"{found['p95_s'] / found['p50_s']:.3f}",
            f"{1e3 * kernels_s:.2f}",
            f"{1e3 * p50:.2f}",
            f"{p50 / found['p50_s'] - 1.0:+.0%}",
            f"{1e3 * band.p5:.1f} to {1e3 * band.p95:.1f}",
            f"{1e3 * told.gpu_active_s:.2f}",
            f"{told.gpu_active_s / kernels_s - 1.0:+.0%}",
            f"{1e3 * told.host_s:.2f}",
        )
        print(f"{step:<18}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
