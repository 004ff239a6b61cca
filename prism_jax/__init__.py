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
    from .recorded.replay import stragglers as stragglers
    from .recorded.unseen_steps import match_moments as match_moments, predict_job as predict_job
    from .recorded.what_if import what_if as what_if
    from .result.distribution import StepTimeDistribution as StepTimeDistribution
    from .search.search_plans import search_plans as search_plans, search_sizes as search_sizes
    from .search.tune import tune as tune
    from .search.tuned_fields import TuneLimits as TuneLimits
    from .sharding.shard_tables import shard_tables as shard_tables
    from .show.catalogues import show_catalogue as show_catalogue, show_entry as show_entry
    from .show.show import job_section as job_section
    from .simulate.sensitivity import hardware_sensitivity as hardware_sensitivity, noise_free_step as noise_free_step
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

_NAMES = {  # module -> names
    "": "presets",
    "_inference_loader": "calibrate fit",
    "capture.capture_program": "capture_program",
    "cloud.choose_cloud": "choose_cloud",
    "explain.explain": "attribute",
    "fits.fit_variability": "fit_variability report_fit",
    "fits.load_fits": "load_fits",
    "horizon.predict_run": "predict_run",
    "job.job": "Job",
    "job.load_job": "load_job",
    "launch.export_job": "export_job",
    "launch.import_job": "import_job",
    "measure.write_scripts": "write_measuring_scripts",
    "placement.place_nodes": "place_nodes",
    "plan.plan": "Overlap ParallelPlan",
    "prediction.check": "check_job peak_memory",
    "prediction.new_job": "write_new_job",
    "prediction.predict": "explain_step predict predict_many",
    "queue.schedule_trace": "schedule_trace",
    "recorded.compare_recordings": "compare_recordings",
    "recorded.describe_trace": "describe_trace replay_trace",
    "recorded.formats.open_trace": "open_trace",
    "recorded.predict_trace": "predict_trace",
    "recorded.prediction": "TracePrediction",
    "recorded.recorded_job": "RecordedJob fit_job",
    "recorded.replay": "stragglers",
    "recorded.unseen_steps": "match_moments predict_job",
    "recorded.what_if": "what_if",
    "result.distribution": "StepTimeDistribution",
    "search.search_plans": "search_plans search_sizes",
    "search.tune": "tune",
    "search.tuned_fields": "TuneLimits",
    "sharding.shard_tables": "shard_tables",
    "show.catalogues": "show_catalogue show_entry",
    "show.show": "job_section",
    "simulate.sensitivity": "hardware_sensitivity noise_free_step",
    "simulate.step_time": "step_quantile step_time",
    "slowdowns.find_slow_gpus": "find_slow_gpus",
    "study.compare_jobs": "compare_jobs",
    "study.plan_capacity": "plan_capacity",
    "study.scale_job": "scale_job",
    "study.sweep_jobs": "sweep_jobs",
    "system.hardware": "Cluster Device",
    "system.network": "Tier",
    "trace.trace": "Trace",
    "validation.calibrate": "calibrate_site suggest_runs",
    "validation.validate": "validate_memory validate_steps",
    "validation.validate_log": "validate_log",
    "variability.tree": "Variability",
    "watch.watch_steps": "watch_steps",
    "workload.captured.files": "read_capture write_capture",
    "workload.captured.model": "CapturedModel",
    "workload.captured.program": "CapturedComm CapturedOp RankClass RankProgram",
    "workload.transformer.mixers": "WindowSpec",
    "workload.transformer.sizes": "AdapterSpec MLASpec MoESpec",
    "workload.transformer.spec": "TransformerSpec",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["__version__", *_HOME])  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
