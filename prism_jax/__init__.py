"""prism-jax: the distribution of the step time of a distributed training job.

Public names are loaded on first use, so that `import prism_jax` costs milliseconds and imports no JAX.
"""

from typing import TYPE_CHECKING

from ._lazy import lazy_names
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._inference_loader import calibrate as calibrate, fit as fit
    from .io.job.load_job import load_job as load_job
    from .io.traces.open_trace import open_trace as open_trace
    from .job import Job as Job
    from .plan.plan import Overlap as Overlap, ParallelPlan as ParallelPlan
    from .recorded.edits.what_if import stragglers as stragglers
    from .recorded.match_moments import calibrated as calibrated
    from .recorded.prediction import TracePrediction as TracePrediction
    from .recorded.recorded_job import RecordedJob as RecordedJob, fit_job as fit_job
    from .recorded.trace.trace import Trace as Trace
    from .recorded.unseen_steps import predict_job as predict_job
    from .result import StepTimeDistribution as StepTimeDistribution
    from .simulate import predict as predict, step_time as step_time
    from .system.hardware import Cluster as Cluster, Device as Device, Tier as Tier
    from .variability.tree import Variability as Variability
    from .workload.transformer.spec import MLASpec as MLASpec, MoESpec as MoESpec, TransformerSpec as TransformerSpec

_HOME = {
    "Cluster": "system.hardware",
    "Device": "system.hardware",
    "Job": "job",
    "MLASpec": "workload.transformer.spec",
    "MoESpec": "workload.transformer.spec",
    "Overlap": "plan.plan",
    "ParallelPlan": "plan.plan",
    "RecordedJob": "recorded.recorded_job",
    "StepTimeDistribution": "result",
    "Tier": "system.hardware",
    "Trace": "recorded.trace.trace",
    "TracePrediction": "recorded.prediction",
    "TransformerSpec": "workload.transformer.spec",
    "Variability": "variability.tree",
    "calibrate": "_inference_loader",
    "calibrated": "recorded.match_moments",
    "fit": "_inference_loader",
    "fit_job": "recorded.recorded_job",
    "load_job": "io.job.load_job",
    "open_trace": "io.traces.open_trace",
    "predict": "simulate",
    "predict_job": "recorded.unseen_steps",
    "step_time": "simulate",
    "stragglers": "recorded.edits.what_if",
}

__all__ = sorted(["__version__", *_HOME])  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
