"""prism-jax: the distribution of the step time of a distributed training job.

Public names are loaded on first use, so that `import prism_jax` costs milliseconds and imports no JAX.
"""

from typing import TYPE_CHECKING

from ._version import __version__ as __version__
from .core.lazy import lazy_names

if TYPE_CHECKING:
    from . import presets as presets
    from ._inference_loader import calibrate as calibrate, fit as fit
    from .capture.capture_program import capture_program as capture_program
    from .cloud.choose_cloud import choose_cloud as choose_cloud
    from .explain.explain import attribute as attribute
    from .fits.fit_variability import fit_variability as fit_variability, report_fit as report_fit
    from .fits.load_fits import load_fits as load_fits
    from .horizon.predict_run import predict_run as predict_run
    from .job.job import Job as Job
    from .job.load_job import load_job as load_job
    from .launch.export_job import export_job as export_job
    from .launch.import_job import import_job as import_job
    from .measure.write_scripts import write_measuring_scripts as write_measuring_scripts
    from .placement.place_nodes import place_nodes as place_nodes
    from .plan.plan import Overlap as Overlap, ParallelPlan as ParallelPlan
    from .prediction.check import check_job as check_job, peak_memory as peak_memory
    from .prediction.new_job import write_new_job as write_new_job
    from .prediction.predict import explain_step as explain_step, predict as predict, predict_many as predict_many
    from .queue.schedule_trace import schedule_trace as schedule_trace
    from .recorded.compare_recordings import compare_recordings as compare_recordings
    from .recorded.describe_trace import describe_trace as describe_trace, replay_trace as replay_trace
    from .recorded.formats.open_trace import open_trace as open_trace
    from .recorded.predict_trace import predict_trace as predict_trace
    from .recorded.prediction import TracePrediction as TracePrediction
    from .recorded.recorded_job import RecordedJob as RecordedJob, fit_job as fit_job
    from .recorded.stragglers import stragglers as stragglers
    from .recorded.unseen_steps import match_moments as match_moments, predict_job as predict_job
    from .recorded.what_if import what_if as what_if
    from .result.distribution import StepTimeDistribution as StepTimeDistribution
    from .search.search_plans import search_plans as search_plans, search_sizes as search_sizes
    from .search.tune import tune as tune
    from .search.tuned_fields import TuneLimits as TuneLimits
    from .sharding.shard_tables import shard_tables as shard_tables
    from .show.catalogues import show_catalogue as show_catalogue, show_entry as show_entry
    from .show.job_section import job_section as job_section
    from .simulate.sensitivity import (
        hardware_sensitivity as hardware_sensitivity,
        noise_free_step as noise_free_step,
    )
    from .simulate.step_time import step_quantile as step_quantile, step_time as step_time
    from .slowdowns.find_slow_gpus import find_slow_gpus as find_slow_gpus
    from .study.compare_jobs import compare_jobs as compare_jobs
    from .study.plan_capacity import plan_capacity as plan_capacity
    from .study.scale_job import scale_job as scale_job
    from .study.sweep_jobs import sweep_jobs as sweep_jobs
    from .system.hardware import Cluster as Cluster, Device as Device
    from .system.network import Tier as Tier
    from .trace.trace import Trace as Trace
    from .validation.calibrate import calibrate_site as calibrate_site, suggest_runs as suggest_runs
    from .validation.validate import validate_memory as validate_memory, validate_steps as validate_steps
    from .validation.validate_log import validate_log as validate_log
    from .variability.tree import Variability as Variability
    from .watch.watch_steps import watch_steps as watch_steps
    from .workload.captured.files import read_capture as read_capture, write_capture as write_capture
    from .workload.captured.model import CapturedModel as CapturedModel
    from .workload.captured.program import (
        CapturedComm as CapturedComm,
        CapturedOp as CapturedOp,
        RankClass as RankClass,
        RankProgram as RankProgram,
    )
    from .workload.transformer.mixers import WindowSpec as WindowSpec
    from .workload.transformer.sizes import AdapterSpec as AdapterSpec, MLASpec as MLASpec, MoESpec as MoESpec
    from .workload.transformer.spec import TransformerSpec as TransformerSpec

_HOME = {
    "AdapterSpec": "workload.transformer.sizes",
    "CapturedComm": "workload.captured.program",
    "CapturedModel": "workload.captured.model",
    "CapturedOp": "workload.captured.program",
    "Cluster": "system.hardware",
    "Device": "system.hardware",
    "Job": "job.job",
    "MLASpec": "workload.transformer.sizes",
    "MoESpec": "workload.transformer.sizes",
    "Overlap": "plan.plan",
    "ParallelPlan": "plan.plan",
    "RankClass": "workload.captured.program",
    "RankProgram": "workload.captured.program",
    "RecordedJob": "recorded.recorded_job",
    "StepTimeDistribution": "result.distribution",
    "Tier": "system.network",
    "Trace": "trace.trace",
    "TracePrediction": "recorded.prediction",
    "TransformerSpec": "workload.transformer.spec",
    "WindowSpec": "workload.transformer.mixers",
    "TuneLimits": "search.tuned_fields",
    "Variability": "variability.tree",
    "attribute": "explain.explain",
    "calibrate": "_inference_loader",
    "choose_cloud": "cloud.choose_cloud",
    "calibrate_site": "validation.calibrate",
    "capture_program": "capture.capture_program",
    "match_moments": "recorded.unseen_steps",
    "check_job": "prediction.check",
    "compare_jobs": "study.compare_jobs",
    "compare_recordings": "recorded.compare_recordings",
    "describe_trace": "recorded.describe_trace",
    "explain_step": "prediction.predict",
    "find_slow_gpus": "slowdowns.find_slow_gpus",
    "fit": "_inference_loader",
    "fit_job": "recorded.recorded_job",
    "fit_variability": "fits.fit_variability",
    "hardware_sensitivity": "simulate.sensitivity",
    "job_section": "show.job_section",
    "export_job": "launch.export_job",
    "import_job": "launch.import_job",
    "load_fits": "fits.load_fits",
    "load_job": "job.load_job",
    "noise_free_step": "simulate.sensitivity",
    "open_trace": "recorded.formats.open_trace",
    "peak_memory": "prediction.check",
    "place_nodes": "placement.place_nodes",
    "plan_capacity": "study.plan_capacity",
    "predict": "prediction.predict",
    "predict_many": "prediction.predict",
    "predict_job": "recorded.unseen_steps",
    "predict_run": "horizon.predict_run",
    "predict_trace": "recorded.predict_trace",
    "presets": "",
    "read_capture": "workload.captured.files",
    "replay_trace": "recorded.describe_trace",
    "report_fit": "fits.fit_variability",
    "scale_job": "study.scale_job",
    "schedule_trace": "queue.schedule_trace",
    "search_plans": "search.search_plans",
    "search_sizes": "search.search_plans",
    "shard_tables": "sharding.shard_tables",
    "show_catalogue": "show.catalogues",
    "show_entry": "show.catalogues",
    "step_quantile": "simulate.step_time",
    "step_time": "simulate.step_time",
    "stragglers": "recorded.stragglers",
    "suggest_runs": "validation.calibrate",
    "sweep_jobs": "study.sweep_jobs",
    "tune": "search.tune",
    "validate_memory": "validation.validate",
    "validate_log": "validation.validate_log",
    "validate_steps": "validation.validate",
    "watch_steps": "watch.watch_steps",
    "what_if": "recorded.what_if",
    "write_capture": "workload.captured.files",
    "write_measuring_scripts": "measure.write_scripts",
    "write_new_job": "prediction.new_job",
}

__all__ = sorted(["__version__", *_HOME])  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
