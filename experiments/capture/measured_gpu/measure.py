# pyright: reportMissingImports=false
"""Steps of the examples on one GPU as they are: seconds of every step, and of the kernels in it. Needs PyTorch and a GPU.

python experiments/capture/measured_gpu/measure.py OUT.json [--steps 100]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "capture"
NETWORKS = ("nanogpt", "resnet", "moe")
LAYOUT = SimpleNamespace(
    size=lambda _: 1, n_stages=1, stage=0, is_first=True, is_last=True, mesh=None, device=torch.device("cuda")
)
WARM_UP = 20
PROFILED = 5


def step_of(name: str, compiled: bool) -> Callable[[], None]:
    """A training step of an example, as the capture reads it."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model, inputs, loss, optimizer = module.build(LAYOUT)
    for value in inputs:  # zeros would take less power
        value.random_(0, 1000) if value.dtype == torch.long else value.normal_()
    update = optimizer if callable(optimizer) else optimizer.step
    run = torch.compile(model) if compiled else model

    def step() -> None:
        loss(run(*inputs)).backward()
        update()
        for parameter in model.parameters():
            parameter.grad = None

    return step


def measured(step: Callable[[], None], n_steps: int) -> dict[str, Any]:
    """Seconds of steps in a row, between events on the GPU, and of all kernels of a step."""
    for _ in range(WARM_UP):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(n_steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    seconds = sorted(a.elapsed_time(b) / 1e3 for a, b in pairwise(events))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.self_device_time_total > 0.0]
    kernels = [(row.key, row.count, row.self_device_time_total / 1e6) for row in rows]
    top = sorted(kernels, key=lambda row: -row[2])[:40]
    return {
        "p50_s": seconds[n_steps // 2],
        "p95_s": seconds[int(0.95 * n_steps)],
        "steps_s": seconds,
        "kernels_s": sum(row[2] for row in kernels) / PROFILED,
        "n_kernels": sum(row[1] for row in kernels) / PROFILED,
        "top": [{"name": name[:80], "count": n / PROFILED, "seconds": s / PROFILED} for name, n, s in top],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "steps": {}}
    for name in NETWORKS:
        for way in ("eager", "compiled"):
            try:
                found["steps"][f"{name} {way}"] = measured(step_of(name, way == "compiled"), asked.steps)
            except Exception as error:  # one that does not run leaves the others
                found["steps"][f"{name} {way}"] = {"error": str(error)[:500]}
            asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(name, way, {k: v for k, v in found["steps"][f"{name} {way}"].items() if k not in ("steps_s", "top")})
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
