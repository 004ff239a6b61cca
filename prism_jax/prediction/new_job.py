"""A job file to start from, with a plan that runs and fits into memory; what `prism-jax init` does. No JAX."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import gcd
from pathlib import Path
from typing import Annotated, Any

from ..core.errors import ConfigError, DataError
from ..core.use_case import OUTPUT, Argument, Message, Option, use_case
from ..core.write_file import check_target, write_text
from ..framework.frameworks import framework_of
from ..job.job import Job
from ..job.load_job import job_of
from ..job.write_job import new_job_text
from ..system.catalog import cluster as cluster_preset
from ..system.hardware import Cluster
from ..tables.document import Document
from ..workload.base.workload import Workload, n_body
from ..workload.catalog import workload
from ..workload.dlrm.spec import DLRMSpec
from ..workload.hugging_face.config import read_hf_config

MODEL, CLUSTER, N_DEVICES = "llama-3-8b", "dgx-h100", 64
TOKENS_PER_STEP = 2**22
SEQ_LEN = 8192
IMAGES_PER_STEP, MOST_IMAGES = 4096, 256  # of a step; of a GPU at a time
SAMPLES_PER_GPU = 2048  # of recommenders, as MLPerf's DLRM-dcnv2 trains with (67 k samples on 32 to 64 GPUs)
EXPERT_DEGREES = (1, 8, 64)
FSDP = "fsdp"


def written_messages(job: Job, path: str | Path = "job.yaml") -> tuple[Message, ...]:
    """Messages on what was written, and what to do with it."""
    plan = job.plan
    degrees = f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}"
    found = [Message(f"wrote {path}: {job.model.name} on {plan.n_devices:,} x {job.cluster.device.name}, {degrees}")]
    if not job.memory.fits:
        text = "note: no plan was found that fits into memory; this is the one that divides the model most"
        found.append(Message(text, always=True))
    return (*found, Message(f"next: prism-jax check {path}; prism-jax predict {path}; prism-jax search {path}"))


@use_case(then=(written_messages,), text=lambda _: ())
def write_new_job(
    path: Annotated[str | Path, Argument("--output -o", "FILE", heading=OUTPUT)] = "job.yaml",
    *,
    model: Annotated[str, Option(metavar="NAME")] = MODEL,
    cluster: Annotated[str, Option(metavar="NAME")] = CLUSTER,
    n_devices: Annotated[int, Option("--gpus", "N", least=1, most=2**20)] = N_DEVICES,
    framework: Annotated[str | None, Option(metavar="NAME")] = None,
    overwrite: Annotated[bool, Option("--force")] = False,
) -> Job:
    """Write a commented job file to start from: every field, its default, and what it is.

    The plan is the first that fits into memory, in order of growing tensor and pipeline parallelism, without recomputation if
    possible, for images with as many on a GPU as fit; it is a start, not a recommendation (`search_plans` compares plans). Where
    none fits, the most divided is written.

    Args:
        path: YAML file to write, .yaml or .yml.
        model: a preset (`show models`), or a Hugging Face config.json.
        cluster: a preset (`show clusters`).
        n_devices: GPUs of the job.
        framework: training software (`show frameworks`); open by default.
        overwrite: replace the file if it is there.

    Raises:
        DataError: the file is there already or cannot be written.
        SpecError: an unknown model, cluster or framework, or no plan is possible.

    Example:
        >>> write_new_job("job.yaml", model="llama-3-70b", n_devices=256).plan.tp  # doctest: +SKIP
        8
    """
    file = Path(path)
    _check_file(file, overwrite)
    text, job = new_job(file, model, cluster, n_devices, framework)
    write_text(file, text)
    return job


def new_job(file: Path, model: str, cluster: str, n_devices: int, framework: str | None = None) -> tuple[str, Job]:
    """Text of a new job file, and its job; arguments as `write_new_job`.

    Args:
        file: where it will be kept.

    Raises:
        SpecError: an unknown model, cluster or framework, or no plan is possible.
    """
    sections = {"name": file.stem, "model": _model_section(model, file)}
    sections |= {"cluster": {"preset": cluster_preset(cluster, n_devices).name, "n_devices": n_devices}}
    if framework is not None:
        sections |= {"framework": framework_of(framework).name}
    spec = read_hf_config(model) if "hf_config" in sections["model"] else workload(model)
    chosen = _first_that_fits(sections, spec, cluster_preset(cluster, n_devices), str(file))
    return new_job_text(chosen, str(file)), job_of(Document(str(file), dict(chosen)))


def _check_file(file: Path, overwrite: bool) -> None:
    if file.suffix not in (".yaml", ".yml"):
        raise DataError(f"{file}: a new job file is YAML. Give it the ending .yaml.")
    check_target(file)
    if file.exists() and not overwrite:
        raise DataError(f"{file}: is there already. Name another file, or replace it with --force (overwrite=True).")


def _model_section(model: str, file: Path) -> dict[str, str]:
    """A preset by its own name, or a config by its path from the folder of the job file."""
    if Path(model).suffix == ".json":
        return {"hf_config": os.path.relpath(model, file.parent)}
    return {"preset": workload(model).name}


def _first_that_fits(sections: Mapping[str, Any], model: Workload, cluster: Cluster, file: str) -> dict[str, Any]:
    """The sections with the first plan that fits into memory, else with the last that can run."""
    runs, wrong = None, None
    for plan in _plans(model, cluster, sections.get("framework")):
        data = {**sections, "plan": plan}
        try:
            fits = job_of(Document(file, dict(data))).memory.fits
        except ConfigError as error:
            wrong = wrong or error
            continue
        runs = data
        if fits:
            break
    if runs is None:
        raise wrong if wrong is not None else DataError(f"{cluster.n_devices} GPUs: no plan is possible")
    return runs


def _plans(model: Workload, cluster: Cluster, framework: str | None) -> Iterator[dict[str, Any]]:
    """Plans to try, those that divide the model least first."""
    n_devices, splits = cluster.n_devices, n_body(model)
    widest_tp = 1 if framework == FSDP else cluster.node_size
    deepest_pp = 1 if framework == FSDP else splits
    degrees = [(tp, pp) for tp in _powers(widest_tp) for pp in _powers(deepest_pp) if n_devices % (tp * pp) == 0]
    for recompute in ("none", "full"):
        for tp, pp in sorted(degrees, key=lambda pair: (pair[0] * pair[1], pair[1])):
            for ep in EXPERT_DEGREES if model.has_experts else (1,):
                for micro_batch in _micro_batches(model, n_devices // (tp * pp)):
                    yield _plan(model, cluster, (tp, pp, ep, micro_batch), recompute, framework)


def _micro_batches(model: Workload, dp: int) -> list[int]:
    """Samples of a GPU at a time to try: one sequence; of images and of samples of recommenders as many as fit."""
    if getattr(model, "max_seq_len", 0):
        return [1]
    most = SAMPLES_PER_GPU if isinstance(model, DLRMSpec) else min(MOST_IMAGES, max(1, IMAGES_PER_STEP // dp))
    return _powers(most)[::-1]


def _plan(
    model: Workload, cluster: Cluster, degrees: tuple[int, int, int, int], recompute: str, framework: str | None
) -> dict[str, Any]:
    tp, pp, ep, micro_batch = degrees
    dp = cluster.n_devices // (tp * pp)
    seq_len = min(SEQ_LEN, getattr(model, "max_seq_len", 0))
    per_step = TOKENS_PER_STEP // seq_len if seq_len else 0 if isinstance(model, DLRMSpec) else IMAGES_PER_STEP
    n_micro_batch = max(1, 2 * pp if pp > 1 else 1, per_step // (micro_batch * dp))
    device = cluster.device.peak_flops_per_s
    return {
        "micro_batch": micro_batch,
        "global_batch": dp * micro_batch * n_micro_batch,
        "seq_len": seq_len,
        "tp": tp,
        "pp": pp,
        "dp": "auto",
        "ep": gcd(ep, dp),
        "sequence_parallel": tp > 1 and seq_len % tp == 0,
        "recompute": recompute,
        "dtype": next(dtype for dtype in ("bf16", "fp16", "fp32") if dtype in device),
        **_sharding(model, framework),
    }


def _sharding(model: Workload, framework: str | None) -> dict[str, Any]:
    """Sharding of states over dp: tables of a recommender have their own way, and its layers are whole on every GPU."""
    if isinstance(model, DLRMSpec):
        return {"zero_stage": 0}
    return {"sharding": "fsdp"} if framework == FSDP else {"zero_stage": 1}


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [2**k for k in range(most.bit_length()) if 2**k <= most]
