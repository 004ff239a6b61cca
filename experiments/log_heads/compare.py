"""Fields of a job that a log's head states, against what is known of it (`truth.json`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prism_jax.system.catalog import known_device
from prism_jax.validation.log_report import LogRun

Truth = Mapping[str, Any]
RECOMPUTE = {None: "none"}
PRECISION = {"bf16 (fp8 head)": "bf16"}
DATA = {
    "layers": "model.n_layers",
    "hidden": "model.hidden",
    "ffn": "model.ffn_hidden",
    "heads": "model.n_heads",
    "kv_heads": "model.n_kv_heads",
    "head_dim": "model.head_dim",
    "vocab_padded": "model.vocab",
    "experts": "model.moe.n_experts",
    "top_k": "model.moe.top_k",
    "moe_ffn": "model.moe.ffn_hidden",
    "seq_len": "plan.seq_len",
    "gated": "model.gated",
    "tied": "model.tied_embeddings",
}
PLAN = ("tp", "pp", "cp", "ep", "dp", "micro_batch", "global_batch", "zero_stage", "sequence_parallel")
DEFAULTS = {
    "plan.cp": 1,
    "plan.ep": 1,
    "plan.tp": 1,
    "plan.pp": 1,
    "plan.zero_stage": 0,
    "plan.sequence_parallel": False,
}


def fields(truth: Truth, run: LogRun) -> Iterator[tuple[str, Any, Any]]:
    """Names of fields that the truth states, its value, and the one that was read."""
    job = run.job
    for name, path in DATA.items():
        wanted = truth["model"].get(name)
        if wanted is not None:
            yield f"model.{name}", wanted, _model(job, path)
    for name in PLAN:
        if truth.get(name) is not None:
            yield name, truth[name], job.get(f"plan.{name}", DEFAULTS.get(f"plan.{name}"))
    for name, value in _others(truth, job):
        if value is not None:
            yield name, value, _read(name, job, run)


def _model(job: Mapping[str, Any], path: str) -> Any:
    found = job.get(path)
    if found is None and path == "model.head_dim" and job.get("model.hidden"):
        return job["model.hidden"] // job["model.n_heads"]
    return found


def _others(truth: Truth, job: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "world_size", truth.get("world_size")
    yield "gpu", truth.get("gpu")
    yield "precision", PRECISION.get(truth["precision"], truth["precision"])
    if "recompute" in truth:
        yield "recompute", truth["recompute"]
    yield "optimizer", (truth.get("optimizer") or "").split(" ")[0] or None
    yield "grad_accum", truth.get("grad_accum")
    yield "cpu_optimizer", truth.get("cpu_optimizer")
    yield "overlap.grad_reduce", (truth.get("overlap") or {}).get("grad_reduce")
    yield "overlap.tp_comm", (truth.get("overlap") or {}).get("tp_comm")
    yield "vpp", truth.get("vpp")
    for name in ("norm", "position"):
        yield f"model.{name}", truth["model"].get(name)
    yield "params_printed_first_rank", truth.get("params_printed_first_rank")


def _read(name: str, job: Mapping[str, Any], run: LogRun) -> Any:
    readers: dict[str, Callable[[], Any]] = {
        "world_size": lambda: job.get("cluster.n_devices"),
        "gpu": lambda: job.get("cluster.device") or job.get("cluster.device.preset"),
        "precision": lambda: job.get("plan.dtype"),
        "recompute": lambda: job.get("plan.recompute"),
        "optimizer": lambda: job.get("plan.optimizer"),
        "grad_accum": lambda: _accumulation(job),
        "cpu_optimizer": lambda: bool(job.get("plan.offload_optimizer")),
        "overlap.grad_reduce": lambda: job.get("plan.overlap.dp"),
        "overlap.tp_comm": lambda: job.get("plan.overlap.tp"),
        "vpp": lambda: job.get("plan.virtual_stages"),
        "model.norm": lambda: {"rms": "RMSNorm", "layer": "LayerNorm"}.get(str(job.get("model.norm"))),
        "model.position": lambda: job.get("model.position"),
        "params_printed_first_rank": lambda: run.printed.get("params_first_rank"),
    }
    return readers[name]()


def _accumulation(job: Mapping[str, Any]) -> int | None:
    total, micro, dp = (job.get(f"plan.{name}") for name in ("global_batch", "micro_batch", "dp"))
    return None if total is None or micro is None or dp is None else total // (micro * dp)


def same(name: str, wanted: Any, read: Any) -> bool:
    """Whether what was read is what is true; names in any case, words of a position within a longer one."""
    if name == "zero_stage" and read == 1 and wanted == 0:  # optimizers in bf16 shard at stage 0, too: the job says so
        return True
    if name == "gpu":
        return known_device(str(wanted)) == read
    if isinstance(wanted, str):
        return read is not None and (str(read).lower() in wanted.lower() or wanted.lower() in str(read).lower())
    return read == wanted
