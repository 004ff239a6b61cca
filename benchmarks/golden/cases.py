"""What the golden gate runs: a name, and commands that run one after the other in a folder with the files of `inputs.py`.

A case is a line; `&&` joins commands. The first word of a name is the command (a folder of tests/golden). Nothing here knows a
module of prism_jax: cases stay as they are when code moves, and `job`, `plan`, `schedule` (now `run`, `capacity`, `queue`) are
typed as revisions of long ago understand them.
"""

from __future__ import annotations

from fnmatch import fnmatch

SMALL = "--samples 64"
CHANGED_MODEL = (
    "--set model=llama-3-8b --set plan.pp=1 --set plan.schedule=1f1b --set plan.virtual_stages=1 --set plan.dp=2"
)
LEAVES = (
    "predict", "job", "cloud", "search", "sweep", "scale", "compare", "plan", "capture", "place", "shard", "schedule",
    "init", "import", "export", "measure", "check", "calibrate", "show", "watch", "trace info", "trace replay", "trace predict",
    "trace what-if", "slowdowns", "trace compare",
    "trace kernels", "trace host", "trace export", "validate steps", "validate memory", "fit fleet", "fit steps",
    "fit collectives", "fit kernels", "fit overlap", "fit failures", "fit repairs", "fit revocation", "fit checkpoints",
    "fit power", "fit ladder", "fit totals", "fit servers", "fit saves", "fit startup", "fit report",
)  # fmt: skip
CATALOGUES = (
    "models", "devices", "clusters", "networks", "schedules", "frameworks", "objectives", "variability", "reliability",
    "kernels", "families", "traces", "detectors", "examples", "schemas",
)  # fmt: skip
ENTRIES = (
    "models deepseek-v3", "devices h100-sxm", "clusters dgx-h100", "schedules dualpipe", "frameworks megatron-core",
    "objectives p95", "variability h100-default", "reliability llama3-2024", "families mixture", "examples gpt3_175b_1024",
)  # fmt: skip
FAILING = ("overlap", "repairs", "revocation")  # their few rows fail the checks, and the fit is kept under another name
DRAWN = ("collectives", "power", "ladder", "totals", "servers", "saves", "startup")  # draws differ between processors
FITS = {
    "fleet-map": "fleet times.csv --method map",
    "steps": "steps steps.csv --method map",
    "collectives": "collectives all_reduce.log --method map",
    "kernels": "kernels gemm.csv --seed 1",
    "overlap": "overlap overlap.csv --method map",
    "failures": "failures failures.csv --method map",
    "repairs": "repairs repairs.csv --method map",
    "revocation": "revocation spells.csv --method map",
    "checkpoints": "checkpoints checkpoints.csv --method map",
    "power": "power power.csv --method map",
    "ladder": "ladder ladder.csv",
    "totals": "totals totals.csv",
    "servers": "servers servers.csv",
    "saves": "saves saves.csv",
    "startup": "startup startup.csv",
}
TABLE = {
    "program/help": " && ".join(("--help", "--version", *(f"{leaf} --help" for leaf in LEAVES))),
    "program/usage": "predict --no-such && nothing && fit && show && job --worlds x job.yaml && compare job.yaml --samples -1",
    **{f"show/{kind}": f"show {kind} && show {kind} --json" for kind in CATALOGUES},
    "show/entries": " && ".join(f"show {entry}" for entry in ENTRIES),
    "show/entries-json": " && ".join(f"show {entry} --json" for entry in ENTRIES),
    "show/yaml": " && ".join(
        f"show {entry} --yaml" for entry in ENTRIES if entry.split()[0] in ("models", "devices", "clusters", "examples")
    ),
    "show/schema": "show schemas prediction --json && show schemas fit --json",
    "show/wrong": "show modles && show models llama-3-9b && show schedules 1f1b --yaml && show models --yaml",
    "init/new": "init new.yaml && check new.yaml && init new.yaml && init new.yaml --force -q",
    "init/options": "init a.yaml --model mixtral-8x7b --cluster dgx-a100 --gpus 32 --framework megatron-core",
    "import/script": (
        "import run.sh && import run.sh 13 --env TP=8 --env SP=true --device h100-sxm --details -o a.yaml "
        "&& check a.yaml && import run.sh 13 --env TP=8 --env SP= --device h100-sxm --json"
    ),
    "import/wrong": "import job.yaml && import absent.sh && import run.sh --env TP && import run.sh 13 --env TP=x --env SP=",
    "export/all": (
        "export job.yaml --to megatron --save-dir out && export job.yaml --to torchtitan --save-dir out --details "
        "&& export job.yaml --to deepspeed --save-dir out --json && export moe.yaml --to maxtext --save-dir out"
    ),
    "export/wrong": (
        "export job.yaml --to megatrom && export dlrm_dcnv2_64 --to megatron && export job.yaml --to maxtext --save-dir a/b"
    ),
    "init/wrong": "init a.yaml --model nothing && init a.yaml --gpus 7 && init folder/a.yaml",
    "check/small": "check job.yaml && check job.yaml --json && check job.yaml -v",
    "check/examples": "check llama3_405b_16384 && check deepseek_v3_2048 && check dlrm_dcnv2_64 && check resnet50_64"
    " && check t5_11b_256 && check dit_xl_2_32 && check vit_h_14_64",
    "check/examples-json": "check llama3_405b_16384_131k --json && check bert_large_1024 --json && check moe.yaml --json",
    "check/wrong": "check wrong.yaml && check indivisible.yaml && check absent.yaml && check job.yaml --set plan.tp=x"
    " && check job.yaml --set plan.nothing=1 && check job.yaml --cluster dgx-h101",
    "check/memory": "check large.yaml && check large.yaml --ignore-memory && check large.yaml --json",
    "predict/small": f"predict job.yaml {SMALL} && predict job.yaml {SMALL} -v",
    "predict/small-json": f"predict job.yaml {SMALL} --seed 1 --json",
    "predict/files": f"predict job.yaml {SMALL} --fast --plot step.png --trace step.json.gz",
    "predict/brute-force": f"predict job.yaml {SMALL} --method brute-force --slowdowns gpus.csv --seed 3 --price 2.5",
    "predict/pipeline": f"predict gpt3_175b_1024 {SMALL}",
    "predict/experts": f"predict moe.yaml {SMALL} && predict moe.yaml {SMALL} --json --fast",
    "predict/tables": f"predict tables.yaml {SMALL} && predict tables.yaml {SMALL} --json",
    "predict/dlrm": f"predict dlrm_dcnv2_64 {SMALL}",
    "predict/images": f"predict resnet50_64 {SMALL} && predict vit_h_14_64 {SMALL} --fast",
    "predict/encoder-decoder": f"predict t5_11b_256 {SMALL} --json",
    "predict/sharded": f"predict llama2_7b_fsdp_64 {SMALL} && predict llama2_7b_fsdp_64 {SMALL} --variability none --fast",
    "predict/large": f"predict llama3_405b_16384 {SMALL}",
    "predict/memory": f"predict large.yaml {SMALL} && predict large.yaml {SMALL} --ignore-memory --fast --json",
    "predict/wrong": "predict wrong.yaml && predict job.yaml --method guess && predict job.yaml --fit absent.npz"
    " && predict job.yaml --plot step.txt && predict job.yaml --slowdowns times.csv && predict job.yaml --samples 1"
    " && predict job.yaml --variability nothing && predict times.csv",
    "job/steps": "job job.yaml --steps 1000 --mtbf 3h --worlds 500 --plot run.png",
    "job/tokens-json": "job job.yaml --tokens 1B --mtbf 10h --checkpoint 600s --checkpoint-write 40s --restart 10min"
    " --worlds 500 --json",
    "job/deadline": "job llama2_7b_fsdp_64 --steps 20000 --reliability llama3-2024 --deadline 5d --worlds 300",
    "job/policies": "job placed.yaml --steps 5000 --mtbf 2h --policy shrink --worlds 300 -q"
    " && job placed.yaml --steps 5000 --mtbf 2h --policy hot_spare --spares 1 --worlds 300 --json",
    "job/wrong": "job job.yaml && job job.yaml --steps 9 --tokens 9 && job job.yaml --steps 9 --deadline 3"
    " && job job.yaml --steps 9 --mtbf 0s && job job.yaml --steps 9 --policy wait && job job.yaml --steps 9 --reliability none",
    "cloud/shipped": "cloud job.yaml --steps 1000 --regions us-east-1 --most-gpus 8 --worlds 300 --plot money.png",
    "cloud/prices": "cloud bert_large_1024 --steps 20000 --worlds 300 --most-gpus 16 --catalog prices.csv --deadline 4d"
    " --prob 0.9 --json",
    "cloud/resume": "cloud bert_large_1024 --steps 20000 --worlds 300 --most-gpus 16 --catalog prices.csv --deadline 4d"
    " --budget 9000 --prob 0.9 --spot never --resume state.json",
    "cloud/nothing": "cloud bert_large_1024 --steps 20000 --worlds 300 --most-gpus 16 --catalog prices.csv --deadline 1h",
    "cloud/wrong": "cloud job.yaml --steps 9 --deadline 3 && cloud job.yaml --steps 9 --regions us-east-9"
    " && cloud job.yaml --steps 9 --availability weibul && cloud job.yaml --steps 9 --catalog absent.csv",
    "search/small": "search job.yaml --space space.yaml -o best.yaml --plot front.png",
    "search/small-json": "search job.yaml --space space.yaml --objective p99 --top 3 --json --resume search.npz",
    "search/sizes": "search job.yaml --space space.yaml --gpus 8 --gpus 16 --price 2.5",
    "search/gradient": "search job.yaml --space space.yaml --method gradient",
    "search/continuous": "search job.yaml --continuous checkpoint --mtbf 3h --checkpoint 600s --checkpoint-write 5s"
    " && search job.yaml --set plan.global_batch=400 --continuous share --slowdowns gpus.csv --json"
    " && search job.yaml --continuous shar && search job.yaml --tier-price nvlink=2",
    "search/wrong": "search job.yaml --space job.yaml && search job.yaml --objective p42 && search job.yaml --method guess",
    "sweep/small": f"sweep job.yaml --set plan.micro_batch=1,2 {SMALL} --resume study.npz --csv table.csv --plot sweep.png",
    "sweep/forms": f"sweep job.yaml --set plan.micro_batch=1,2 --gpus 8,16 {SMALL} --price 2 --markdown"
    f" && sweep job.yaml --set plan.micro_batch=1,2 {SMALL} --json && sweep job.yaml --set plan.tp=1,3 {SMALL}",
    "scale/small": f"scale job.yaml --gpus 8,16 {SMALL} --plot scale.png --price 2.5 --target p95<=1s",
    "scale/strong-json": f"scale placed.yaml --gpus 8:16 --mode strong --vary plan.micro_batch=1,2 {SMALL} --json",
    "scale/wrong": "scale job.yaml --gpus 8 --target p95 && scale job.yaml --gpus 7 && scale job.yaml --gpus x",
    "compare/two": f"compare job.yaml placed.yaml {SMALL} --plot jobs.png && compare job.yaml placed.yaml {SMALL} --markdown",
    "compare/two-json": f"compare job.yaml placed.yaml {SMALL} --price 2.5 --json",
    "compare/wrong": "compare job.yaml && compare job.yaml absent.yaml && compare job.yaml placed.yaml --price x=2",
    "plan/fleets": f"plan job.yaml --fleet 8xa100-80gb --fleet 16xh200 --days 3 --space space.yaml {SMALL}"
    " --price h200=2.5 --price a100-80gb=1",
    "plan/tokens-json": f"plan job.yaml --fleet 8xh200 --tokens 1B --space space.yaml {SMALL} --reliability llama3-2024 --json",
    "plan/wrong": "plan job.yaml --fleet 8xabacus && plan job.yaml --fleet h200 && plan job.yaml",
    "capture/job": f"capture job.yaml -o job.capture.gz && predict job.capture.gz --cluster dgx-a100 {SMALL}"
    " && check job.capture.gz --cluster dgx-h100 && check job.capture.gz && capture job.capture.gz",
    "capture/hlo": "capture mlp_fsdp2_tp4.txt -o hlo.capture.gz && capture mlp_fsdp2_tp4.txt --json"
    f" && predict hlo.capture.gz --cluster dgx-a100 {SMALL} --json",
    "capture/jax": "capture mlp_step.py:train_step --devices 8 -o jax.capture.gz",
    "capture/execution-trace": "capture execution_trace.json -o et.capture.gz && capture execution_trace.json --json",
    "capture/wrong": "capture absent.py:step && capture job.yaml --fusion eager && capture job.yaml --front-end none"
    " && capture mlp_step.py:nothing --devices 8",
    "place/nodes": "place placed.yaml --slowdowns nodes.csv --plot place.svg --hostfile hosts --rankfile ranks",
    "place/splits-json": "place placed.yaml --slowdowns nodes.csv --splits --json",
    "place/wrong": "place placed.yaml --slowdowns times.csv && place placed.yaml --slowdowns nodes.csv --spares 3",
    "shard/tables": "shard tables.yaml -o sharded.yaml --plot shard.png && check sharded.yaml",
    "shard/tables-json": "shard tables.yaml --whole --spread 0.2 --objective p99 --json",
    "shard/dlrm": "shard dlrm_dcnv2_64",
    "shard/wrong": "shard job.yaml && shard tables.yaml --spread -1",
    "schedule/queue": "schedule queue.csv --seeds 2 && schedule queue.csv --seeds 2 --policy srtf --estimate p95 --gpus 8",
    "schedule/queue-json": "schedule queue.csv --seeds 2 --gpus 8 --cv 0.01 --cv 0.09 --policy sjf --policy edf --json",
    "schedule/wrong": "schedule queue.csv --gpus 3 && schedule queue.csv --policy lifo && schedule absent.csv",
    "calibrate/runs": f"calibrate runs.csv -o calibration.npz && predict job.yaml --fit calibration.npz {SMALL} --fast"
    " && validate steps runs.csv --fit calibration.npz --workers 1",
    "calibrate/runs-json": "calibrate runs.csv --framework fsdp --json",
    "calibrate/logs": "calibrate --log job.yaml=maxtext.log -o calibration.npz",
    "calibrate/suggest": "calibrate runs.csv --suggest 3 && calibrate runs.csv --suggest 2 --json",
    "calibrate/wrong": "calibrate && calibrate times.csv && calibrate absent.csv",
    "trace/info": "trace info local_cluster && trace info local_cluster --json && trace info execution_trace.json"
    " --kernels kineto.json && trace info maxtext.log && trace info phases.csv --json && trace info torchtitan.log",
    "trace/replay": "trace replay local_cluster && trace replay local_cluster --json",
    "trace/predict": "trace predict local_cluster --draws 400 --plot steps.pdf"
    " && trace predict local_cluster --draws 400 --replicas 16 --micro-batches 12",
    "trace/predict-json": "trace predict local_cluster --draws 400 --splits 3 --fit-replicas 1 --json"
    " && trace predict maxtext.log --draws 400 --json",
    "trace/log": "trace predict maxtext.log --draws 400 && trace predict phases.csv --draws 400 --skip 5",
    "trace/what-if": "trace what-if local_cluster --draws 400 --replace-rank 3 --plot workers.png"
    " && trace what-if local_cluster --draws 400 --swap 0:1 --slow-rank 3:1.2 --json",
    "trace/kernels": "trace kernels profiles && trace kernels profiles --top 2 --json && trace kernels local_cluster"
    " && trace predict profiles --kernels --draws 400",
    "trace/host": "trace host kineto.json && trace host kineto.json --json && trace host local_cluster",
    "trace/export": "trace export local_cluster --perfetto steps.json.gz && trace export local_cluster --perfetto one.json"
    " --step 5 && trace export local_cluster --perfetto one.json --step 3",
    "trace/wrong": "trace info absent.csv && trace info job.yaml && trace replay maxtext.log && trace predict maxtext.log"
    " --replicas 4 && trace info phases.csv --skip 200 && trace what-if local_cluster --swap 0:9",
    "slowdowns/log": "slowdowns stragglers.log -o gpus.csv && slowdowns stragglers.log --json && slowdowns absent.log",
    "trace/compare": "trace compare phases.csv log.csv && trace compare log.csv log.csv --json && trace compare log.csv",
    "watch/phases": "watch phases.csv --plot phases.png --remaining 100 && watch log.csv",
    "watch/json": "watch phases.csv --restart-cost 1min --smallest 0.1 --json && watch local_cluster --json",
    "watch/wrong": "watch absent.csv && watch phases.csv --restart-cost 3 && watch phases.csv --learn 500",
    **{
        f"fit/{name}": f"fit {fit} -o {name}.npz && fit report {name}{'.failed' * (name in FAILING)}.npz --json"
        for name, fit in FITS.items()
    },
    **{
        f"fit/{name}-json": f"fit {FITS[name]} -o fit.npz --json && fit report fit.npz"
        for name in ("steps", "ladder", "power")
    },
    "fit/fleet-nuts": "fit fleet times.csv --draws 100 --chains 2 -o fleet.npz",
    "fit/failures-nuts": "fit failures failures.csv --draws 100 --chains 2 -o failures.npz",
    "fit/holdout": "fit fleet times.csv --method map --holdout node --splits 2"
    " && fit steps steps.csv --method map --holdout system",
    "fit/used": f"fit fleet times.csv --method map -o fleet.npz -q && fit collectives all_reduce.log --method map -o net.npz -q"
    f" && predict job.yaml --cluster dgx-h100 --fit fleet.npz --fit net.npz --force {SMALL}"
    " && check job.yaml --fit fleet.npz --force"
    " && fit report fleet.npz --plot fit.png",
    "fit/wrong": "fit fleet absent.csv && fit fleet gemm.csv && fit steps steps.csv --method guess && fit report job.yaml"
    " && fit fleet times.csv --map x && fit fleet times.csv --unit duration=parsec && fit fleet times.csv --where gpu=99",
    "validate/steps": "validate steps runs.csv --workers 1 --plot accuracy.png && validate steps runs.csv --deterministic"
    " --workers 1",
    "validate/steps-json": "validate steps runs.csv --workers 1 --json",
    "validate/memory": "score memory memory.csv --json",
    "validate/wrong": "validate steps times.csv && validate memory runs.csv && validate steps absent.csv",
}
INTENDED = {  # cases that differ from 03e76ee, and why
    "calibrate/wrong": "tables of jobs name their columns by fields of the job file, so other columns are refused in other words",
    "validate/wrong": "as calibrate/wrong",
    "validate/steps-json": "the draws of a job follow from the hash of its content, which named the modules of its classes: "
    "intervals move within their Monte Carlo error",
    "calibrate/runs": "as validate/steps-json: runs are sorted by that hash, so that sums differ in their last digits",
    "calibrate/runs-json": "as calibrate/runs",
}
DETAILED = (  # commands whose reports have a first screen; of each case the first one prints all of its report
    "predict", "job", "cloud", "search", "sweep", "scale", "compare", "plan", "place", "shard", "schedule", "calibrate", "watch",
    "trace info", "trace replay", "trace predict", "trace what-if", "trace host", "validate steps", "check", "capture",
)  # fmt: skip


def _commands(name: str, commands: str) -> tuple[str, ...]:
    first, *rest = (line.strip() for line in commands.split("&&"))
    has_screen = first.startswith(DETAILED) and not name.endswith(("/wrong", "/usage"))
    if has_screen and not any(word in first.split() for word in ("--json", "-q", "--markdown")):
        first += " --details"
    return first, *rest


CASES = {name: _commands(name, commands) for name, commands in TABLE.items()}
COMPARED_ONLY = (  # too slow for each run of the tests, or other between machines (chains) and versions of JAX (its programs)
    "predict/pipeline", "predict/experts", "predict/dlrm", "predict/encoder-decoder", "predict/sharded", "predict/large",
    "predict/tables", "place/nodes", "place/splits-json", "plan/fleets", "capture/hlo", "shard/dlrm", "trace/predict*",
    "capture/jax", "search/continuous",
    "fit/*-nuts", "fit/*-json", "fit/holdout", "fit/used", "fit/fleet-map", *(f"fit/{name}" for name in (*FAILING, *DRAWN)),
)  # fmt: skip


def stored_cases() -> dict[str, tuple[str, ...]]:
    """Returns the cases that are kept in tests/golden: cheap, and the same on every machine to four digits."""
    return {name: case for name, case in CASES.items() if not any(fnmatch(name, pattern) for pattern in COMPARED_ONLY)}
