"""Use cases: everything that the command line does is one call here, and every answer is a typed report.

`run_*` return the report with what it was made of, for pictures and other files; the other names return the report alone.
Names are imported when they are used; none imports JAX before its arguments are known to be right.
"""

from typing import TYPE_CHECKING

from .._core.lazy import lazy_names

if TYPE_CHECKING:
    from .calibrate import (
        JobLog as JobLog,
        calibrate_site as calibrate_site,
        run_calibration as run_calibration,
        suggest_runs as suggest_runs,
    )
    from .captured.capture import capture_program as capture_program, run_capture as run_capture
    from .catalogue import (
        CATALOGUES as CATALOGUES,
        job_section as job_section,
        show_catalogue as show_catalogue,
        show_entry as show_entry,
    )
    from .check import check_job as check_job, peak_memory as peak_memory
    from .cloud.run import choose_cloud as choose_cloud, run_cloud as run_cloud
    from .fit import (
        Columns as Columns,
        Holdout as Holdout,
        fit_variability as fit_variability,
        read_fit as read_fit,
        report_fit as report_fit,
        run_fit as run_fit,
    )
    from .fitted.load_fits import load_fits as load_fits
    from .horizon.run import predict_run as predict_run, run_horizon as run_horizon
    from .horizon.schedule import schedule_trace as schedule_trace
    from .new_job import write_new_job as write_new_job
    from .placing.nodes import place_nodes as place_nodes, run_placement as run_placement
    from .placing.tables import run_sharding as run_sharding, shard_tables as shard_tables
    from .predict import (
        explain_step as explain_step,
        predict as predict,
        predict_many as predict_many,
        run_prediction as run_prediction,
    )
    from .search import (
        check_method as check_method,
        run_search as run_search,
        search_plans as search_plans,
        search_sizes as search_sizes,
    )
    from .studies.capacity import plan_capacity as plan_capacity, run_capacity as run_capacity
    from .studies.compare import compare_jobs as compare_jobs, run_comparison as run_comparison
    from .studies.scale import run_scaling as run_scaling, scale_job as scale_job
    from .studies.sweep import run_sweep as run_sweep, sweep_jobs as sweep_jobs
    from .trace.export import export_trace as export_trace
    from .trace.host import host_of_trace as host_of_trace
    from .trace.info import describe_trace as describe_trace, replay_trace as replay_trace
    from .trace.predict import (
        Check as Check,
        predict_trace as predict_trace,
        run_trace_prediction as run_trace_prediction,
    )
    from .trace.watch import run_watch as run_watch, watch_steps as watch_steps
    from .trace.what_if import Changes as Changes, run_what_if as run_what_if, what_if as what_if
    from .validate import (
        StepsValidationRun as StepsValidationRun,
        run_steps_validation as run_steps_validation,
        shipped_rows_note as shipped_rows_note,
        validate_memory as validate_memory,
        validate_steps as validate_steps,
    )

_HOME = {
    "CATALOGUES": "catalogue",
    "Changes": "trace.what_if",
    "Check": "trace.predict",
    "Columns": "fit",
    "Holdout": "fit",
    "JobLog": "calibrate",
    "StepsValidationRun": "validate",
    "calibrate_site": "calibrate",
    "capture_program": "captured.capture",
    "run_capture": "captured.capture",
    "check_job": "check",
    "check_method": "search",
    "choose_cloud": "cloud.run",
    "compare_jobs": "studies.compare",
    "describe_trace": "trace.info",
    "explain_step": "predict",
    "export_trace": "trace.export",
    "fit_variability": "fit",
    "host_of_trace": "trace.host",
    "job_section": "catalogue",
    "load_fits": "fitted.load_fits",
    "peak_memory": "check",
    "place_nodes": "placing.nodes",
    "plan_capacity": "studies.capacity",
    "predict": "predict",
    "predict_many": "predict",
    "predict_trace": "trace.predict",
    "predict_run": "horizon.run",
    "read_fit": "fit",
    "replay_trace": "trace.info",
    "report_fit": "fit",
    "run_calibration": "calibrate",
    "run_capacity": "studies.capacity",
    "run_cloud": "cloud.run",
    "run_comparison": "studies.compare",
    "run_fit": "fit",
    "run_horizon": "horizon.run",
    "run_placement": "placing.nodes",
    "run_prediction": "predict",
    "run_scaling": "studies.scale",
    "run_search": "search",
    "run_sharding": "placing.tables",
    "run_steps_validation": "validate",
    "run_sweep": "studies.sweep",
    "run_trace_prediction": "trace.predict",
    "run_what_if": "trace.what_if",
    "run_watch": "trace.watch",
    "scale_job": "studies.scale",
    "schedule_trace": "horizon.schedule",
    "search_plans": "search",
    "search_sizes": "search",
    "shard_tables": "placing.tables",
    "shipped_rows_note": "validate",
    "show_catalogue": "catalogue",
    "show_entry": "catalogue",
    "suggest_runs": "calibrate",
    "sweep_jobs": "studies.sweep",
    "validate_memory": "validate",
    "validate_steps": "validate",
    "watch_steps": "trace.watch",
    "what_if": "trace.what_if",
    "write_new_job": "new_job",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
