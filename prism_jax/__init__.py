"""prism-jax: the distribution of the step time of a distributed training job.

Public names are loaded on first use, so that `import prism_jax` costs milliseconds and imports no JAX.
"""

from typing import TYPE_CHECKING

from ._core.lazy import lazy_names
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import presets as presets
    from ._inference_loader import calibrate as calibrate, fit as fit
    from .app.calibrate import calibrate_site as calibrate_site, suggest_runs as suggest_runs
    from .app.captured.capture import capture_program as capture_program
    from .app.catalogue import (
        job_section as job_section,
        show_catalogue as show_catalogue,
        show_entry as show_entry,
    )
    from .app.check import check_job as check_job, peak_memory as peak_memory
    from .app.cloud.run import choose_cloud as choose_cloud
    from .app.fit import fit_variability as fit_variability, report_fit as report_fit
    from .app.fitted.load_fits import load_fits as load_fits
    from .app.horizon.run import predict_run as predict_run
    from .app.horizon.schedule import schedule_trace as schedule_trace
    from .app.new_job import write_new_job as write_new_job
    from .app.placing.nodes import place_nodes as place_nodes
    from .app.placing.tables import shard_tables as shard_tables
    from .app.predict import explain_step as explain_step, predict as predict, predict_many as predict_many
    from .app.search import search_plans as search_plans, search_sizes as search_sizes
    from .app.studies.capacity import plan_capacity as plan_capacity
    from .app.studies.compare import compare_jobs as compare_jobs
    from .app.studies.scale import scale_job as scale_job
    from .app.studies.sweep import sweep_jobs as sweep_jobs
    from .app.trace.info import describe_trace as describe_trace, replay_trace as replay_trace
    from .app.trace.predict import predict_trace as predict_trace
    from .app.trace.watch import watch_steps as watch_steps
    from .app.trace.what_if import what_if as what_if
    from .app.validate import validate_memory as validate_memory, validate_steps as validate_steps
    from .io.capture.read_capture import read_capture as read_capture
    from .io.capture.write_capture import write_capture as write_capture
    from .io.job.load_job import load_job as load_job
    from .io.traces.open_trace import open_trace as open_trace
    from .job import Job as Job
    from .plan.plan import Overlap as Overlap, ParallelPlan as ParallelPlan
    from .recorded.edits.what_if import stragglers as stragglers
    from .recorded.moments import match_moments as match_moments
    from .recorded.prediction import TracePrediction as TracePrediction
    from .recorded.recorded_job import RecordedJob as RecordedJob, fit_job as fit_job
    from .recorded.trace.trace import Trace as Trace
    from .recorded.unseen_steps import predict_job as predict_job
    from .result import StepTimeDistribution as StepTimeDistribution
    from .simulate import step_time as step_time
    from .simulate.sensitivity.fields import hardware_sensitivity as hardware_sensitivity
    from .simulate.sensitivity.quantile import noise_free_step as noise_free_step, step_quantile as step_quantile
    from .system.hardware import Cluster as Cluster, Device as Device, Tier as Tier
    from .variability.tree import Variability as Variability
    from .workload.captured.model import CapturedModel as CapturedModel
    from .workload.captured.program import RankClass as RankClass, RankProgram as RankProgram
    from .workload.captured.rows import CapturedComm as CapturedComm, CapturedOp as CapturedOp
    from .workload.transformer.spec import (
        AdapterSpec as AdapterSpec,
        MLASpec as MLASpec,
        MoESpec as MoESpec,
        TransformerSpec as TransformerSpec,
        WindowSpec as WindowSpec,
    )

_HOME = {
    "AdapterSpec": "workload.transformer.spec",
    "CapturedComm": "workload.captured.rows",
    "CapturedModel": "workload.captured.model",
    "CapturedOp": "workload.captured.rows",
    "Cluster": "system.hardware",
    "Device": "system.hardware",
    "Job": "job",
    "MLASpec": "workload.transformer.spec",
    "MoESpec": "workload.transformer.spec",
    "Overlap": "plan.plan",
    "ParallelPlan": "plan.plan",
    "RankClass": "workload.captured.program",
    "RankProgram": "workload.captured.program",
    "RecordedJob": "recorded.recorded_job",
    "StepTimeDistribution": "result",
    "Tier": "system.hardware",
    "Trace": "recorded.trace.trace",
    "TracePrediction": "recorded.prediction",
    "TransformerSpec": "workload.transformer.spec",
    "WindowSpec": "workload.transformer.spec",
    "Variability": "variability.tree",
    "calibrate": "_inference_loader",
    "choose_cloud": "app.cloud.run",
    "calibrate_site": "app.calibrate",
    "capture_program": "app.captured.capture",
    "match_moments": "recorded.moments",
    "check_job": "app.check",
    "compare_jobs": "app.studies.compare",
    "describe_trace": "app.trace.info",
    "explain_step": "app.predict",
    "fit": "_inference_loader",
    "fit_job": "recorded.recorded_job",
    "fit_variability": "app.fit",
    "hardware_sensitivity": "simulate.sensitivity.fields",
    "job_section": "app.catalogue",
    "load_fits": "app.fitted.load_fits",
    "load_job": "io.job.load_job",
    "noise_free_step": "simulate.sensitivity.quantile",
    "open_trace": "io.traces.open_trace",
    "peak_memory": "app.check",
    "place_nodes": "app.placing.nodes",
    "plan_capacity": "app.studies.capacity",
    "predict": "app.predict",
    "predict_many": "app.predict",
    "predict_job": "recorded.unseen_steps",
    "predict_run": "app.horizon.run",
    "predict_trace": "app.trace.predict",
    "presets": "",
    "read_capture": "io.capture.read_capture",
    "replay_trace": "app.trace.info",
    "report_fit": "app.fit",
    "scale_job": "app.studies.scale",
    "schedule_trace": "app.horizon.schedule",
    "search_plans": "app.search",
    "search_sizes": "app.search",
    "shard_tables": "app.placing.tables",
    "show_catalogue": "app.catalogue",
    "show_entry": "app.catalogue",
    "step_quantile": "simulate.sensitivity.quantile",
    "step_time": "simulate",
    "stragglers": "recorded.edits.what_if",
    "suggest_runs": "app.calibrate",
    "sweep_jobs": "app.studies.sweep",
    "validate_memory": "app.validate",
    "validate_steps": "app.validate",
    "watch_steps": "app.trace.watch",
    "what_if": "app.trace.what_if",
    "write_capture": "io.capture.write_capture",
    "write_new_job": "app.new_job",
}

__all__ = sorted(["__version__", *_HOME])  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
