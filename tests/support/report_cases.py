"""Every kind of report: a command that prints it, the call in Python that answers the same, and the files that both read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import prism_jax as pj
from benchmarks.golden.inputs import ROOT, write_inputs
from prism_jax.capture.capture_program import capture_step
from prism_jax.core.report import Report
from prism_jax.horizon.checkpoint import Checkpoint
from prism_jax.host.host_of_trace import host_of_trace
from prism_jax.recorded.describe_trace import kernels_of_trace
from prism_jax.shell.app import main
from prism_jax.show.doctor import examine_installation
from prism_jax.show.saved_report import open_reports
from tests.prism_jax.launch.heads import LLAMA, megatron_block, megatron_steps

TRACE = str(ROOT / "examples" / "local_cluster")
FEW = {"n_samples": 64}
SAVES = pj.TuneLimits(mtbf_h=3.0, checkpoint=Checkpoint(40.0, load_s=40.0, interval_s=600.0), restart_s=300.0)
LLAMA_S = 3.5  # about what its head predicts
MEMORY = """\
row,model,framework,cluster,plan.dp,plan.sharding,plan.micro_batch,plan.global_batch,plan.seq_len,fits,peak_memory_bytes
one,llama-2-7b,fsdp,dgx-h100,16,fsdp,1,32,4096,true,4e10
two,llama-2-7b,fsdp,dgx-h100,16,fsdp,2,32,4096,false,
"""
CASES: dict[str, tuple[str, Callable[[], Report]]] = {  # kind of report: a command, and the call that answers the same
    "sweep": (
        "sweep job.yaml --set plan.micro_batch=1,2 --samples 64",
        lambda: pj.sweep_jobs("job.yaml", ["plan.micro_batch=1,2"], **FEW),
    ),
    "scaling": ("scale job.yaml --gpus 8,16 --samples 64", lambda: pj.scale_job("job.yaml", "8,16", **FEW)),
    "comparison": (
        "compare job.yaml placed.yaml --samples 64",
        lambda: pj.compare_jobs(["job.yaml", "placed.yaml"], **FEW),
    ),
    "capacity": (
        "capacity job.yaml --fleet 8xa100-80gb --days 3 --samples 64",
        lambda: pj.plan_capacity("job.yaml", ["8xa100-80gb"], days=3.0, **FEW),
    ),
    "cloud": (
        "cloud job.yaml --steps 90000 --regions us-central1 --most-gpus 8 --worlds 200",
        lambda: pj.choose_cloud("job.yaml", n_steps=90_000, regions=["us-central1"], most_gpus=8, n_worlds=200),
    ),
    "reports": ("report saved.json saved.json", lambda: open_reports("saved.json", "saved.json")),
    "check": ("check job.yaml", lambda: pj.check_job("job.yaml")),
    "prediction": (
        "predict job.yaml --samples 64 --slowdowns gpus.csv",
        lambda: pj.explain_step("job.yaml", slowdowns="gpus.csv", **FEW),
    ),
    "run": (
        "run job.yaml --steps 100000 --mtbf 30h --worlds 200",
        lambda: pj.predict_run("job.yaml", n_steps=100_000, mtbf_h=30.0, n_worlds=200),
    ),
    "study": (
        "search job.yaml --space space.yaml --top 2",
        lambda: pj.search_plans("job.yaml", space="space.yaml", top=2),
    ),
    "sizes": (
        "search job.yaml --space space.yaml --gpus 8 --gpus 16 --price 2.5",
        lambda: pj.search_sizes("job.yaml", [8, 16], space="space.yaml", price_per_hour=2.5),
    ),
    "tune": (
        "search job.yaml --continuous checkpoint --mtbf 3h --checkpoint 600s --checkpoint-write 40s --restart 300s",
        lambda: pj.tune("job.yaml", ["checkpoint"], limits=SAVES),
    ),
    "placement": ("place placed.yaml --slowdowns nodes.csv", lambda: pj.place_nodes("placed.yaml", "nodes.csv")),
    "sharding": (
        "shard tables.yaml --whole --spread 0.2",
        lambda: pj.shard_tables("tables.yaml", whole=True, spread=0.2),
    ),
    "host": ("trace host kineto.json", lambda: host_of_trace("kineto.json")),
    "queue": ("queue queue.csv --seeds 2", lambda: pj.schedule_trace("queue.csv", n_seeds=2)),
    "site-calibration": ("calibrate runs.csv", lambda: pj.calibrate_site("runs.csv")),
    "suggestion": ("calibrate runs.csv --suggest 2", lambda: pj.suggest_runs("runs.csv", 2)),
    "fit": (
        "fit fleet times.csv --method map",
        lambda: pj.fit_variability("fleet", ["times.csv"], method="map"),
    ),
    "kept-fit": ("fit report fleet.npz", lambda: pj.report_fit("fleet.npz")),
    "steps-validation": (
        "validate steps runs.csv --deterministic",
        lambda: pj.validate_steps("runs.csv", deterministic=True),
    ),
    "log-validation": (
        "validate headed.log --device h100-sxm",
        lambda: pj.validate_log("headed.log", device="h100-sxm"),
    ),
    "memory-validation": ("validate memory memory.csv", lambda: pj.validate_memory("memory.csv")),
    "export": (
        "export job.yaml --to megatron --save-dir exported --force",
        lambda: pj.export_job("job.yaml", "megatron", save_dir="exported", overwrite=True),
    ),
    "import": (
        "import run.sh 13 --env TP=8 --env SP=true --device h100-sxm",
        lambda: pj.import_job("run.sh", ["13"], variables={"TP": "8", "SP": "true"}, device="h100-sxm"),
    ),
    "capture": ("capture job.yaml", lambda: capture_step("job.yaml")),
    "trace-kernels": ("trace kernels profiles --top 2", lambda: kernels_of_trace("profiles", top=2)),
    "execution-trace": ("trace info execution_trace.json", lambda: pj.describe_trace("execution_trace.json")),
    "trace-info": (f"trace info {TRACE}", lambda: pj.describe_trace(TRACE)),
    "watch": (f"watch {TRACE} --learn 12", lambda: pj.watch_steps(TRACE, n_learn=12)),
    "slowdowns": ("slowdowns stragglers.log", lambda: pj.find_slow_gpus(["stragglers.log"])),
    "trace-comparison": ("trace compare log.csv log.csv", lambda: pj.compare_recordings(["log.csv", "log.csv"])),
    "trace-replay": (f"trace replay {TRACE}", lambda: pj.replay_trace(TRACE)),
    "trace-prediction": (
        f"trace predict {TRACE} --draws 400 --splits 2",
        lambda: pj.predict_trace(TRACE, n_split=2, n_draw=400),
    ),
    "what-if": (
        f"trace what-if {TRACE} --draws 400 --layers-per-stage 4",
        lambda: pj.what_if(TRACE, layers_per_stage=4, n_draw=400),
    ),
    "catalogue": ("show devices", lambda: pj.show_catalogue("devices")),
    "doctor": ("doctor", examine_installation),
    "entry": ("show devices h100-sxm", lambda: pj.show_entry("devices", "h100-sxm")),
}


def write_case_inputs(folder: Path) -> None:
    """Writes everything that the commands read: the files of the golden gate, a log with a head, a kept fit, a stored report."""
    write_inputs(folder)
    (folder / "memory.csv").write_text(MEMORY)
    (folder / "headed.log").write_text("\n".join([*megatron_block(LLAMA), *megatron_steps([LLAMA_S] * 8)]))
    assert main(["fit", "fleet", f"{folder}/times.csv", "--method", "map", "-q", "-o", f"{folder}/fleet.npz"]) == 0
    pj.check_job(f"{folder}/job.yaml").save(folder / "saved.json")
