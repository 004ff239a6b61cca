"""prism-jax: the distribution of the step time of a distributed training job.

Public names are loaded on first use, so that `import prism_jax` costs milliseconds and imports no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._door import calibrate as calibrate, fit as fit
    from .explain.what_if import stragglers as stragglers
    from .io.config import load_job as load_job
    from .io.traces.open_trace import open_trace as open_trace
    from .job import Job as Job
    from .plan import Overlap as Overlap, ParallelPlan as ParallelPlan
    from .result import StepTimeDistribution as StepTimeDistribution
    from .simulate import predict as predict, step_time as step_time
    from .simulate.calibrate import calibrated as calibrated
    from .simulate.unseen_steps import predict_job as predict_job
    from .system.hardware import Cluster as Cluster, Device as Device, Tier as Tier
    from .trace.prediction import TracePrediction as TracePrediction
    from .trace.recorded_job import RecordedJob as RecordedJob, fit_job as fit_job
    from .trace.trace import Trace as Trace
    from .variability.tree import Variability as Variability
    from .workload.transformer import (
        MLASpec as MLASpec,
        MoESpec as MoESpec,
        TransformerSpec as TransformerSpec,
    )

_HOME = {
    "Cluster": "system.hardware",
    "Device": "system.hardware",
    "Job": "job",
    "MLASpec": "workload.transformer",
    "MoESpec": "workload.transformer",
    "Overlap": "plan",
    "ParallelPlan": "plan",
    "StepTimeDistribution": "result",
    "Tier": "system.hardware",
    "TransformerSpec": "workload.transformer",
    "Variability": "variability.tree",
    "RecordedJob": "trace.recorded_job",
    "Trace": "trace.trace",
    "TracePrediction": "trace.prediction",
    "calibrate": "_door",
    "calibrated": "simulate.calibrate",
    "fit": "_door",
    "fit_job": "trace.recorded_job",
    "load_job": "io.config",
    "open_trace": "io.traces.open_trace",
    "predict": "simulate",
    "predict_job": "simulate.unseen_steps",
    "step_time": "simulate",
    "stragglers": "explain.what_if",
}

__all__ = sorted(["__version__", *_HOME])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "fit":
        from ._door import fit

        return fit
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
