"""The commands of `prism-jax`: one table, from which `--help` is made; a command is imported when it is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any

from ..core.errors import SpecError
from ..core.registry import Registry
from ..fits.models import MODELS, CollectiveRun


@dataclass(frozen=True)
class Command:
    """One command of `prism-jax`.

    Attributes:
        name: as it is typed, with the name of its group in front: "trace info".
        target: a use case, or another function with typed parameters; or "module:name" of one, imported on first use.
        help: one line for `prism-jax --help`.
        fixed: parameters of the function that are not typed, and their values.
        group: heading under which `prism-jax --help` lists it.
        example: one or two command lines that run.
    """

    name: str
    target: str | Callable[..., Any]
    help: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    group: str = "More"
    example: str = ""

    def load(self) -> Callable[..., Any]:
        """The function."""
        if not isinstance(self.target, str):
            return self.target
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)


GROUPS = {
    "trace": "Analyse recorded jobs: summary, comparison, replay, prediction, what-if and host time.",
    "fit": "Fit variability to measurements; `predict --fit` uses it. Exit code: 0 the fit passed its checks; 1 it failed them, "
    "and FILE.npz is kept as FILE.failed.npz; 2 wrong input.",
    "validate": "Compare predictions with measurements.",
}
BY_CONTENT = {"validate": "file"}  # command of a group that is meant where a file follows the name of the group
EARLIER_NAMES = {"job": "run", "plan": "capacity", "schedule": "queue"}  # still understood, and listed nowhere
EARLIER_OPTION = re.compile(r"^--out(?==|$)")  # now --output
# group in `prism-jax --help` -> name, where the use case is, the line in the help, and an example
SHIPPED = {
    "Predict": (
        ("predict", "prism_jax.prediction.predict:explain_step",
         "Predict the distribution of the step time of a job.",
         "prism-jax predict llama2_7b_fsdp_64 --set plan.micro_batch=2 --plot step.png"),
        ("compare", "prism_jax.study.compare_jobs:compare_jobs",
         "Compare jobs, and tell how probable it is that one beats another.",
         "prism-jax compare job.yaml llama2_7b_fsdp_64 --price 2.5"),
        ("sweep", "prism_jax.study.sweep_jobs:sweep_jobs",
         "Predict a grid of jobs and compare them.",
         "prism-jax sweep job.yaml --set plan.micro_batch=1,2,4 --csv table.csv"),
        ("scale", "prism_jax.study.scale_job:scale_job",
         "Predict a job on several numbers of GPUs, and where more stops paying.",
         "prism-jax scale job.yaml --gpus 8,16,32 --mode weak"),
    ),
    "Decide": (
        ("search", "prism_jax.search.search_plans:search",
         "Search for the parallel plan that minimises the tail of the step time.",
         "prism-jax search job.yaml --objective p95 -o best.yaml"),
        ("capacity", "prism_jax.study.plan_capacity:plan_capacity",
         "Plan capacity: what fleets make of a job in tokens, days and money.",
         "prism-jax capacity job.yaml --fleet 8xh200 --fleet 8xb200 --tokens 1B --price 2.5"),
        ("cloud", "prism_jax.cloud.choose_cloud:choose_cloud",
         "Choose which instances to rent, how many, and spot or not, for a deadline and a budget.",
         "prism-jax cloud job.yaml --steps 1000 --deadline 2d --regions us-east-1"),
        ("run", "prism_jax.horizon.predict_run:predict_run",
         "Predict when a training run is done: failures, checkpoints, slow phases, deadline.",
         "prism-jax run job.yaml --steps 100000 --reliability llama3-2024 --deadline 12d"),
        ("place", "prism_jax.placement.place_nodes:place_nodes",
         "Place measured nodes so that the tail of the step time is smallest.",
         "prism-jax place job.yaml --slowdowns gpus.csv"),
        ("export", "prism_jax.launch.export_job:export_job",
         "Write a job as the arguments of a training framework, ready to paste.",
         "prism-jax export job.yaml --to megatron --save-dir launch"),
        ("shard", "prism_jax.sharding.shard_tables:shard_tables",
         "Choose which embedding table goes where so that the step is shortest.",
         "prism-jax shard dlrm_dcnv2_64 -o sharded.yaml"),
        ("queue", "prism_jax.queue.schedule_trace:schedule_trace",
         "Simulate the queue of a cluster under several scheduling policies and duration estimates.",
         "prism-jax queue queue.csv --gpus 8 --policy srtf --estimate p95"),
    ),
    "From recordings": (
        ("trace info", "prism_jax.recorded.describe_trace:describe_trace",
         "Summarise a trace or log, or the execution traces of a job.",
         "prism-jax trace info local_cluster"),
        ("trace replay", "prism_jax.recorded.describe_trace:replay_trace",
         "Replay the recorded durations and compare the steps with the recorded ones.",
         "prism-jax trace replay local_cluster"),
        ("trace predict", "prism_jax.recorded.predict_trace:predict_trace",
         "Predict the distribution of the steps that were not recorded.",
         "prism-jax trace predict local_cluster --plot steps.png"),
        ("trace what-if", "prism_jax.recorded.what_if:what_if",
         "Report the slowdown by op type, rank and stage, and the step-time distribution after changes.",
         "prism-jax trace what-if local_cluster --replace-rank 3"),
        ("trace kernels", "prism_jax.recorded.describe_trace:kernels_of_trace",
         "Rank the kernels of a recorded job by what their variation costs, with the time and the spread of each.",
         "prism-jax trace kernels profiles --top 10"),
        ("trace compare", "prism_jax.recorded.compare_recordings:compare_recordings",
         "Compare recorded steps of two programs: did the change help, beyond run-to-run noise? Exit code 1: slower.",
         "prism-jax trace compare before.csv after.csv"),
        ("trace host", "prism_jax.host.host_of_trace:host_of_trace",
         "Tell how much of a step the host takes: calls, streams and waits of the profiled ranks, run again.",
         "prism-jax trace host kineto.json"),
        ("trace export", "prism_jax.recorded.describe_trace:export_trace",
         "Write recorded steps as a timeline, one process per worker, one thread per stream.",
         "prism-jax trace export local_cluster --perfetto steps.json.gz"),
        ("watch", "prism_jax.watch.watch_steps:watch_steps",
         "Find slow phases in a step log: onset, size, rank, and whether to act or to wait.",
         "prism-jax watch phases.csv --restart-cost 10min --remaining 1000"),
        ("slowdowns", "prism_jax.slowdowns.find_slow_gpus:find_slow_gpus",
         "Find the slow GPUs in reports of straggler detectors, and write them as a table of slowdowns.",
         "prism-jax slowdowns stragglers.log -o gpus.csv"),
    ),
    "Calibrate": (
        ("calibrate", "prism_jax.validation.calibrate:calibrate",
         "Calibrate the cost model with a few measured runs, and show how the error falls with their number.",
         "prism-jax calibrate runs.csv -o site.npz"),
        ("measure", "prism_jax.measure.write_scripts:write_measuring_scripts",
         "Write two scripts that measure your GPUs for `fit`, one for PyTorch and one for JAX.",
         "prism-jax measure --save-dir measure"),
        ("fit report", "prism_jax.fits.fit_variability:report_fit",
         "Show a saved fit and whether it can be trusted.",
         "prism-jax fit fleet times.csv --method map -o fleet.npz\nprism-jax fit report fleet.npz"),
        ("validate file", "prism_jax.validation.validate_log:validate_file",
         "Compare a training log with what its own head predicts, or a table of jobs (`validate FILE` is enough).",
         "prism-jax validate file train.log --device h100-sxm"),
        ("validate steps", "prism_jax.validation.validate:validate_steps",
         "Turn rows into jobs, predict their typical step (p50), and print the error per row, by source and overall.",
         "prism-jax validate steps runs.csv --plot accuracy.png"),
        ("validate memory", "prism_jax.validation.validate:validate_memory",
         "Predict which layouts run out of memory and how much the others need, and compare with what was measured.",
         "prism-jax validate memory layouts.csv"),
    ),
    "Bring in": (
        ("init", "prism_jax.prediction.new_job:write_new_job",
         "Write a commented job file to start from.",
         "prism-jax init job.yaml --model llama-3-70b --gpus 256"),
        ("import", "prism_jax.launch.import_job:import_job",
         "Make a job file of a launch script, of configuration files, or of the head of a training log.",
         "prism-jax import run.sh 13 --env TP=8 --env SP=true --device h100-sxm -o job.yaml"),
        ("capture", "prism_jax.capture.capture_program:capture_step",
         "Capture a training step from its code (PyTorch, JAX, HLO, execution traces), without a GPU.",
         "prism-jax capture mlp_step.py:train_step --devices 8 -o job.capture.gz"),
    ),
    "Look up": (
        ("serve", "prism_jax.serve.serve_folder:serve_folder",
         "Serve a folder of results as a local page in the browser.",
         "prism-jax serve results"),
        ("report", "prism_jax.show.saved_report:open_reports",
         "Open a saved report as text, a picture or one HTML file.",
         "prism-jax report saved.json --html report.html"),
        ("check", "prism_jax.prediction.check:check_job",
         "Validate a job and print what follows from it, without simulating anything.",
         "prism-jax check job.yaml --set plan.tp=2"),
        ("show", "prism_jax.show.show:show",
         "List the shipped models, devices, clusters, schedules, frameworks, jobs and more.",
         "prism-jax show devices h100-sxm"),
        ("doctor", "prism_jax.show.doctor:examine_installation",
         "Examine this installation: versions, devices, cache, one tiny program, memory.",
         "prism-jax doctor"),
    ),
}  # fmt: skip


def _shipped() -> Iterator[Command]:
    for group, commands in SHIPPED.items():
        for name, target, text, example in commands:
            yield Command(name, target, text, group=group, example=example)
    for name, model in MODELS.items():
        needless = {} if name == "collectives" else dict.fromkeys(item.name for item in fields(CollectiveRun))
        if model.help:
            fixed, example = (
                {"model": name, **needless},
                f"prism-jax fit {name} {model.file or f'{name}.csv'} -o {name}.npz",
            )
            yield Command(
                f"fit {name}", "prism_jax.fits.fit_variability:fit_variability", model.help, fixed, "Calibrate", example
            )


COMMANDS: Registry[Command] = Registry("command", lambda: tuple(_shipped()), error=SpecError)


def completed(words: list[str]) -> list[str]:
    """Words in present names, with the command that a group stands for where a file or an option follows its name."""
    words = [EARLIER_NAMES.get(words[0], words[0]), *(EARLIER_OPTION.sub("--output", word) for word in words[1:])]
    meant = BY_CONTENT.get(words[0]) if len(words) > 1 else None
    if meant is None or f"{words[0]} {words[1]}" in COMMANDS or words[1] in ("-h", "--help"):
        return words
    return [words[0], meant, *words[1:]]


def called(words: list[str]) -> Command | None:
    """The command that `words` start with."""
    for n_word in (1, 2):
        name = " ".join(words[:n_word])
        if name in COMMANDS:
            return COMMANDS.named(name)
    return None
