"""Everything that reads a file of a user, with small valid files of each kind."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import prism_jax
from inference.cost_model.site.read_runs import read_site_runs
from inference.data import read_measurements
from prism_jax.io.job.load_job import load_job
from prism_jax.io.space import read_space
from prism_jax.io.tables.memory_table import read_memory_table
from prism_jax.io.tables.slowdowns import read_slowdowns
from prism_jax.io.tables.steps.table import read_step_rows
from prism_jax.io.traces.meta import read_meta
from prism_jax.search.plans.space import default_space
from prism_jax.workload.transformer.hugging_face.config import read_hf_config
from tests.inference.data.tables import COLLECTIVES, FLEET, STEPS
from tests.inference.data.test_gpu_log import DCGM, SMI, TIMES
from tests.prism_jax.io.tables.steps.test_table import REFERENCE
from tests.prism_jax.test_bounds import MEMORY, STEPS as STEP_ROW
from tests.support.broken_traces import straggler
from tests.support.job_texts import INLINE_CLUSTER, JOB, PRESET_CLUSTER
from tests.support.published_configs import PUBLISHED
from tests.support.readme_inputs import SPACE, _collectives
from tests.support.training_logs import LOGS, event_file

EXAMPLES = Path(__file__).parents[2] / "examples"
KINETO = Path(__file__).parents[1] / "data" / "kineto_gloo" / "rank0.json.gz"
STEP_S = [0.5, 0.41, 0.4, 0.42, 0.4, 0.39, 0.41, 0.4]
VARIABILITY = """\
variability:
  preset: h100-default
  step: {kind: normal, cv: 0.01}
  step_ar1: 0.1
  stalls: [{step_prob: 0.01, mean_fraction: 0.05}]
  gemm: {gpu: {kind: mixture, bulk_cv: 0.01, slow_prob: 0.006, slow_factor: 1.014, slow_cv: 0.02}}
  all_reduce: {regime: {kind: log_normal, cv: 0.01}}
"""
TOML = """\
name = "small"
model = "llama-2-7b"
variability = "none"
[cluster]
device = "h100-sxm"
n_devices = 64
[[cluster.tiers]]
name = "nvlink"
n_devices = 8
bandwidth = "450 GB/s"
latency = "2 us"
[[cluster.tiers]]
name = "spine"
bandwidth = "400 Gbit/s"
latency = "9 us"
[plan]
micro_batch = 1
global_batch = 64
seq_len = 4_096
tp = 2
pp = 4
dp = 8
"""
META = "name: made\ndp: 2\npp: 1\ntp: 1\nvirtual_stages: 1\n"
TRACE = "step,dp,pp,op_type,micro_batch,start_s,duration_s\n" + "".join(
    f"{n},{dp},0,{op},0,{n + at + 0.01 * dp},{length}\n"
    for n in range(3)
    for dp in range(2)
    for op, at, length in (
        ("forward-compute", 0.0, 0.2),
        ("backward-compute", 0.3, 0.4),
        ("grads-reduce-scatter", 0.8, 0.1),
    )
)


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    Attributes:
        file: its name.
        seeds: valid contents.
        use: reads the file and does what follows at once.
    """

    name: str
    file: str
    seeds: tuple[bytes, ...]
    use: Callable[[Path], Any]


def _texts(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


def _table(*rows: dict[str, str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _check(path: Path) -> None:
    prism_jax.check_job(path)


def _space(path: Path) -> None:
    read_space(path, default_space(load_job(EXAMPLES / "llama2_7b_fsdp_64.yaml")))


def _slowdowns(path: Path) -> None:
    read_slowdowns(path, 64, 8)


def _site_runs(path: Path) -> None:
    path.with_name("job.yaml").write_text(JOB)
    read_site_runs(path)


def _trace(path: Path) -> None:
    prism_jax.open_trace(path)


def _measured(columns: Any, beside: str = "", text: str = "") -> Callable[[Path], None]:
    def use(path: Path) -> None:
        files = [path]
        if beside:
            path.with_name(beside).write_text(text)
            files = [path.with_name(beside), path]
        read_measurements(files, columns)

    return use


def _straggler_bytes() -> bytes:
    file = io.BytesIO()
    straggler(file)  # type: ignore[arg-type] - pyarrow writes to a buffer, too
    return file.getvalue()


def _examples() -> Iterable[str]:
    return (file.read_text() for file in sorted(EXAMPLES.glob("*.yaml")))


CONFIGS = tuple(json.dumps(config, indent=1) for config, *_ in PUBLISHED.values())
RUNS = _table({"job": "job.yaml", "set": "plan.micro_batch=2", "measured_step_time_s": "0.02"}, {
    "job": "job.yaml", "set": "plan.tp=4 plan.dp=4", "measured_step_time_s": "0.03"})  # fmt: skip
STEPS_JSON = json.dumps([REFERENCE], indent=1)
TIMED = "run,step,duration_s\n" + "".join(f"a,{n},{seconds}\n" for n, seconds in enumerate(STEP_S))

READERS = (
    Reader("job", "job.yaml", _texts(JOB, JOB.replace(PRESET_CLUSTER, INLINE_CLUSTER), *_examples()), _check),
    Reader("job in TOML", "job.toml", _texts(TOML), _check),
    Reader("variability", "job.yaml", _texts(JOB.replace("variability: none\n", VARIABILITY)), _check),
    Reader("Hugging Face", "config.json", _texts(*CONFIGS), read_hf_config),
    Reader("search space", "space.yaml", _texts(SPACE), _space),
    Reader("slowdowns", "slow.csv", _texts("gpu,slowdown\n0,1.05\n3,1.1\n", "host,slowdown\na,1.0\nb,1.2\n"), _slowdowns),
    Reader("steps table", "steps.csv", _texts(_table(STEP_ROW)), read_step_rows),
    Reader("steps table packed", "steps.csv.gz", (gzip.compress(_table(STEP_ROW).encode(), mtime=0),), read_step_rows),
    Reader("steps table in JSON", "steps.json", _texts(STEPS_JSON), read_step_rows),
    Reader("memory table", "memory.csv", _texts(_table(MEMORY)), read_memory_table),
    Reader("runs of a site", "runs.csv", _texts(RUNS), _site_runs),
    Reader("trace metadata", "meta.yaml", _texts(META), read_meta),
    Reader("plain trace", "trace.csv", _texts(TRACE), _trace),
    Reader("Kineto", "rank0.json", (gzip.decompress(KINETO.read_bytes()),), _trace),
    Reader("straggler parquet", "trace-X.parquet", (_straggler_bytes(),), _trace),
    *(Reader(name, kind.name, _texts(kind.write(STEP_S)), _trace) for name, kind in LOGS.items()),
    Reader("event file", "events.out.tfevents.1", (event_file(STEP_S, "step_time"),), _trace),
    Reader("kernel times", "times.csv", _texts(TIMES), _measured(FLEET)),
    Reader("nvidia-smi", "smi.csv", _texts(SMI), _measured(FLEET, "times.csv", TIMES)),
    Reader("dcgmi", "dcgm.log", _texts(DCGM), _measured(FLEET, "times.csv", TIMES.replace("GPU-a", "0").replace("GPU-b", "1"))),
    Reader("timed steps", "steps.csv", _texts(TIMED), _measured(STEPS)),
    Reader("nccl-tests", "all_reduce.log", _texts(_collectives(np.random.default_rng(0))), _measured(COLLECTIVES)),
)  # fmt: skip
