"""Everything that reads a file of a user, with small valid files of each kind."""

import csv
import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
import prism_jax
from experiments.step_tables.memory_table import read_memory_table
from experiments.step_tables.table import read_step_rows
from inference import measured
from inference.cost_model.site_runs import read_site_runs
from inference.data.clean import naming
from inference.data.read import read_measurements
from prism_jax.capture.execution.program import read_traces
from prism_jax.cloud.offers import read_catalogue
from prism_jax.cloud.requirements import read_cloud_state
from prism_jax.core.archive import write_archive
from prism_jax.core.read_file import read_text
from prism_jax.fits.models import model_named
from prism_jax.horizon.reliability_file import load_reliability
from prism_jax.host.kineto_calls import read_rank_calls
from prism_jax.job.edit_job import with_field
from prism_jax.job.load_job import load_job
from prism_jax.job.read_tables import read_counts
from prism_jax.launch.import_job import import_job
from prism_jax.queue.trace_file import read_queue_trace
from prism_jax.recorded.formats.open_trace import read_meta
from prism_jax.search.space import default_space
from prism_jax.search.space_file import read_space
from prism_jax.serve.partial_rows import partial_rows
from prism_jax.serve.runs import Runs
from prism_jax.shell.catalogue import COMMANDS
from prism_jax.slowdowns.find_slow_gpus import find_slow_gpus
from prism_jax.slowdowns.slowdowns_file import read_slowdowns
from prism_jax.validation.job_table import read_memory_runs
from prism_jax.watch.watch_steps import watch_steps
from prism_jax.workload.hugging_face.config import read_hf_config
from tests.experiments.step_tables.test_bounds import MEMORY, STEPS as STEP_ROW
from tests.experiments.step_tables.test_table import REFERENCE
from tests.inference.data.tables import COLLECTIVES, FLEET, STEPS
from tests.inference.data.test_gpu_log import DCGM, SMI, TIMES
from tests.prism_jax.launch.cases import cases_of
from tests.prism_jax.serve.test_partial_rows import SWEEP, write_study
from tests.support.broken_traces import straggler
from tests.support.detector_reports import REPORTS, factors
from tests.support.files.execution_traces import VERSIONS, profile_text, trace_text
from tests.support.files.profiles import flight_recorder_bytes, nsight, nsys_jax, ranges_table, xplane
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
PRICES = """\
cloud,date,instance,gpu,gpus,vcpus,mem_gb,network_gbps,region,zone,usd_h,spot_usd_h,source
aws,2025-04..2025-06-05,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az1,32.77,9.5,list
,,,L4 (24 GB),1,,,,,,0.7,,
"""
RENTED = """\
{"steps_done": 120, "elapsed": "3d", "spent_usd": 81.5,
 "running": {"instance": "p4d.24xlarge", "where": "use1-az1", "count": 4, "policy": "spot"}}
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
        share: of the usual number of damaged files; less where each takes long.
    """

    name: str
    file: str
    seeds: tuple[bytes, ...]
    use: Callable[[Path], Any]
    share: float = 1.0


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


def _edited(path: Path) -> None:
    text = read_text(path, 2**20, "Give a job file.")
    for field, value in (("plan.tp", "4"), ("software.norm", "fused"), ("software.norm", None), ("plan", "{tp: 2}")):
        text = with_field(text, path.name, tuple(field.split(".")), value)


def _launch(path: Path) -> None:
    import_job(path, n_devices=8, device="h100-sxm")


LAUNCHED = {
    "train.yaml": "axolotl: qlora, gpt_neox: one file, llama_factory: lora, maxtext: base alone, megatron_yaml: model-args, "
    "nemo: gpt, nemo_rl: megatron, primus: model by name, verl: yaml",
    "train.toml": "torchtitan: interleaved, torchtitan: of 2024",
    "train.json": "torchtitan: json with sizes",
    "run.sh": "hf_trainer: llava, maxtext: tpu, maxtext: xpk, megatron_shell: arrays, openrlhf: sft, verl: megatron, "
    "slime: dynamic batches, swift: experts",
}


def _launched(file: str) -> tuple[bytes, ...]:
    named = [one.split(": ") for one in LAUNCHED[file].split(", ")]
    return _texts(*(next(one.text for one in cases_of(trainer) if one.name == name) for trainer, name in named))


def _space(path: Path) -> None:
    read_space(path, default_space(load_job(EXAMPLES / "llama2_7b_fsdp_64.yaml")))


def _detector(path: Path) -> None:
    find_slow_gpus([path])
    read_slowdowns(path, 64, 8)


def _slowdowns(path: Path) -> None:
    read_slowdowns(path, 64, 8)


def _catalogue(path: Path) -> None:
    read_catalogue([path])


def _site_runs(path: Path) -> None:
    path.with_name("job.yaml").write_text(JOB)
    read_site_runs(path)


def _trace(path: Path) -> None:
    prism_jax.open_trace(path)


def _nsight_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return nsight(Path(folder) / "run.sqlite").read_bytes()


def _archived(path: Path) -> None:
    archive = path.with_name("run.zip")
    archive.write_bytes(nsys_jax(path.read_bytes()))
    prism_jax.open_trace(archive)


def _execution_trace(path: Path) -> None:
    _ = read_traces(path).program


def _profile(path: Path) -> None:
    path.with_name("et.json").write_text(trace_text())
    _ = read_traces(path.with_name("et.json"), [path]).program


def _execution_traces() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, text in (("et.json", trace_text()), ("kineto.json", profile_text())):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return file.getvalue()


def _run_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        name = Runs(folder).submit(["search", "job.yaml", "--top", "3"]).name
        return (Path(folder) / f"{name}.run").read_bytes()


def _run_of_command(path: Path) -> None:
    runs = Runs(path.parent)
    (run,) = runs.runs()
    assert run.state != "failed" or path.name in run.error
    runs.cancel(run.name)
    runs.resume(run.name)


def _journal(kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.work"
        write_study(path, {0: 3.0, 3: 2.0, 4: "out of memory"})
        if kind == "search":
            plan = {"plan": "tp 2", "value": 1.5, "memory_bytes": 1e9, "n_devices": 8}
            arrays = {"screen/bound": np.array([1.0, 2.0]), "64/scores": np.array([2.5]), "64/plans": np.array([0, 1])}
            write_archive(path, kind, {"objective": "p95", "unit": "s", "best": [plan, plan]}, arrays)
        return path.read_bytes()


def _rows_so_far(path: Path) -> None:
    for words in (SWEEP, ["search", "j.yaml"]):
        partial_rows(COMMANDS.named(words[0]), words, path)


def _measured(columns: Any, beside: str = "", text: str = "") -> Callable[[Path], None]:
    def use(path: Path) -> None:
        files = [path]
        if beside:
            path.with_name(beside).write_text(text)
            files = [path.with_name(beside), path]
        read_measurements(files, columns)

    return use


def _fitted(model: str) -> Callable[[Path], None]:
    """Everything of a fit but the fit."""

    def use(path: Path) -> None:
        found = measured([path], model)
        with naming(found.sources):
            model_named(model).prepare(found.frame)

    return use


def _queue_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"submit_s": [0.0, 60.0], "n_gpus": [1, 8], "run_s": [90, 30], "vc": ["a", "b"]}), file)
    return file.getvalue()


def _straggler_bytes() -> bytes:
    file = io.BytesIO()
    straggler(file)  # type: ignore[arg-type] - pyarrow writes to a buffer, too
    return file.getvalue()


def _examples() -> Iterable[str]:
    return (file.read_text() for file in sorted(EXAMPLES.glob("*.yaml")))


CONFIGS = tuple(json.dumps(config, indent=1) for config, *_ in PUBLISHED.values())
RUNS = _table({"job": "job.yaml", "set": "plan.micro_batch=2", "measured_step_time_s": "0.02"}, {
    "job": "job.yaml", "set": "plan.tp=4 plan.dp=4", "measured_step_time_s": "0.03"})  # fmt: skip
JOBS = _table({"row": "a", "source": "lab", "model": "llama-2-7b", "framework": "fsdp", "cluster": "dgx-h100", "plan.dp": "16",
    "plan.micro_batch": "1", "plan.global_batch": "32", "plan.seq_len": "4096", "step_time_s": "1.5", "step_time_sd_s": "",
    "fits": "true", "peak_memory_bytes": "5e10"})  # fmt: skip
SAMPLES = _table({"id": "1", "model": "ResNet-50", "gpu": "V100", "num_gpus": "8", "gpus_per_node": "8", "global_batch": "2048",
    "samples_per_s": "8000", "submitter": "us", "source_repo": "training_results_v2.0", "precision": "fp16"})  # fmt: skip
STEPS_JSON = json.dumps([REFERENCE], indent=1)
TIMED = "run,step,duration_s\n" + "".join(f"a,{n},{seconds}\n" for n, seconds in enumerate(STEP_S))
QUEUE = "submit_s,gpus,duration_s,deadline_s,vc\n0,8,600,900,a\n60,1,60,500,b\n60,16,3600,9000,a\n"
RELIABILITY = """\
name: mine
observed: {n_gpus: 1000, node_size: 8, hours: 500}
hazards:
  - {cause: GPU, events: 25, per: gpu, repair: 2 h, repair_log_sd: 1, shape: 0.9}
  - {cause: hang, per_job_h: 0.01, nodes_lost: 0, noticed: 30 min, log_sd: 0.5}
slow_phases:
  - {cause: hot, events: 4, per: node, slowdown: 1.2, duration: 1 h}
"""
RELIABILITY_TOML = 'hazards = [{ cause = "x", per_gpu_h = 1e-5, repair = "2 h" }]\n'
FAILURES = "cluster,gpus,nodes,hours,count,kind,cause\na,1000,125,100,3,gpu,x\nb,2000,250,200,9,gpu,x\nb,2000,250,200,1,job,y\n"
REPAIRS = "system,node,start,end,nodes_total,observed_from,observed_until\n" + "".join(
    f"s,n{n % 3},2024-01-0{n} 10:00Z,{f'2024-01-0{n} 12:30Z' if n < 5 else ''},4,2024-01-01 00:00Z,2024-01-09 00:00Z\n"
    for n in range(1, 6)
)
SPELLS = (
    "trace_id,zone,gpu,kind,requested_nodes,gap_s,start_s,duration_s,available,censored_left,censored_right\n"
    + "".join(
        f"t{t},z{t},V100,availability,4,60,{600 * n},600,{(4, 0, 4, 3, 0)[(n + t) % 5]},{int(n == 0)},{int(n == 7)}\n"
        for t in range(2)
        for n in range(8)
    )
)
LIVES = "zone,gpu,nodes,start_s,lifetime_s,ended_at_24h_limit\n" + "".join(
    f"z,K80,3,0,{900 * n},{n % 2}\n" for n in (1, 2, 3)
)
SAVES = """\
source,params_B,ckpt_GB,accelerators,storage,method,mode,save_block_s,save_total_s,load_s
a,7,98,64,GPFS on NVMe,x,synchronous,10,10,20
b,70,,512,"host memory, then NAS about 100 MB/s",y,asynchronous,2,120,
b,70,980,512,S3 mount,y,asynchronous,3,90,60
"""
GEMM = "op,m,n,k,dtype,gpu,time_us\n" + "".join(
    f"gemm,{m},4096,4096,bf16,h100-sxm,{m / 16:g}\n" for m in (512, 1024, 2048, 4096, 8192, 16384)
)
OVERLAP = "kernel,duration_us,overlapped_us,overlap_ratio,dram_throughput_percent\n" + "".join(
    f"k{n},{100 + n},{120 + 3 * n},{0.5 + n / 20},{40 + n}\n" for n in range(6)
)
POWER = "device,workload,clock_mhz,epoch_s,power_w\n" + "".join(
    f"gpu,a,{1400 - 50 * n},{1 + n / 20},{400 - 16 * n}\n" for n in range(10)
)
LADDER = "setup,batch,step_ms\n" + "".join(f"v100,{n},{20 + n}\n" for n in (8, 16, 32, 64))
TOTALS = "model,gpu,batch,flops,n_params,n_tensors,family,step_time_s\n" + "".join(
    f"m{n},k80,128,{n}e9,{n}e6,{50 * n},f{n % 2},{n / 10}\n" for n in range(1, 6)
)
SERVERS = "model,gpu,workers,ps,params,steps_per_s\n" + "".join(f"a,k80,{n},1,2e6,{9 * n}\n" for n in range(1, 5))
STARTS = "provisioning_s,staging_s,booting_s,tier,region\n1.6,40,40,on-demand,east\n1.5,42,38,preemptible,west\n"
FILES_SAVED = "model,save_s,weights_MB,index_kB,meta_MB\na,3.7,5.3,5.4,1\nb,4.2,36,25,3.9\nb,4.3,36,25,3.9\n"
DOCUMENTS = "tokens,source\n700,a\n4096,a\n52,b\n1300,b\n"
EXPERT_LOADS = "layer,step,expert,tokens\n0,0,0,812\n0,0,1,1190\n0,1,0,1003\n0,1,1,1021\n"
LINK_TIMES = "node,day,time_s\nn0,2026-01-01,0.0101\nn1,2026-01-01,0.0102\nn0,2026-01-02,0.0100\nn1,2026-01-02,0.0109\n"
CALLS = json.dumps({"baseTimeNanoseconds": 5, "traceEvents": [
    {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": {"correlation": link}}
    for name, cat, ts, dur, tid, link in (
        ("ProfilerStep#1", "user_annotation", 0.0, 90.0, 1, -1),
        ("aten::mm", "cpu_op", 5.0, 20.0, 1, -1),
        ("cudaLaunchKernel", "cuda_runtime", 7.0, 4.0, 1, 3),
        ("sgemm", "kernel", 12.0, 30.0, 7, 3),
        ("cudaLaunchKernel", "cuda_runtime", 30.0, 4.0, 1, 4),
        ("ncclDevKernel_AllReduce", "kernel", 45.0, 20.0, 9, 4),
        ("cudaDeviceSynchronize", "cuda_runtime", 50.0, 30.0, 1, 5),
        ("cudaMemcpyAsync", "cuda_runtime", 82.0, 4.0, 1, 6),
        ("Memcpy DtoH", "gpu_memcpy", 84.0, 2.0, 7, 6),
    )]}, indent=1)  # fmt: skip
WATCHED = "step,step_time_s\n" + "".join(f"{n},{0.4 + 0.002 * (n % 5) + 0.1 * (n > 40)}\n" for n in range(60))

READERS = (
    Reader("job", "job.yaml", _texts(JOB, JOB.replace(PRESET_CLUSTER, INLINE_CLUSTER), *_examples()), _check),
    Reader("job that is edited", "job.yaml", _texts(JOB, JOB.replace(PRESET_CLUSTER, INLINE_CLUSTER), *_examples()), _edited),
    Reader("job in TOML", "job.toml", _texts(TOML), _check),
    *(Reader(f"launch {name}", name, _launched(name), _launch, 0.3) for name in LAUNCHED),
    Reader("variability", "job.yaml", _texts(JOB.replace("variability: none\n", VARIABILITY)), _check),
    Reader("Hugging Face", "config.json", _texts(*CONFIGS), read_hf_config),
    Reader("search space", "space.yaml", _texts(SPACE), _space),
    Reader("slowdowns", "slow.csv", _texts("gpu,slowdown\n0,1.05\n3,1.1\n", "host,slowdown\na,1.0\nb,1.2\n", DCGM), _slowdowns),
    *(Reader(f"detector {case}", name, _texts(text(factors(n=16))), _detector, 0.3) for case, (_, name, text) in REPORTS.items()),
    Reader("steps table", "steps.csv", _texts(_table(STEP_ROW)), read_step_rows),
    Reader("steps table packed", "steps.csv.gz", (gzip.compress(_table(STEP_ROW).encode(), mtime=0),), read_step_rows),
    Reader("steps table in JSON", "steps.json", _texts(STEPS_JSON), read_step_rows),
    Reader("samples per second", "samples.csv", _texts(SAMPLES), read_step_rows),
    Reader("memory table", "memory.csv", _texts(_table(MEMORY)), read_memory_table),
    Reader("runs of a site", "runs.csv", _texts(RUNS, JOBS), _site_runs),
    Reader("jobs that fitted", "jobs.csv", _texts(JOBS), read_memory_runs),
    Reader("trace metadata", "meta.yaml", _texts(META), read_meta),
    Reader("plain trace", "trace.csv", _texts(TRACE), _trace),
    Reader("Kineto", "rank0.json", (gzip.decompress(KINETO.read_bytes()),), _trace),
    Reader("XPlane", "host.xplane.pb", (xplane(), xplane(1, marked=False)), _trace),
    Reader("Nsight Systems", "run.sqlite", (_nsight_bytes(),), _trace, 0.5),
    Reader("nsys-jax", "run_proc0.zip", (nsys_jax(),), _trace, 0.5),
    Reader("ranges of nsys-jax", "trace.parquet", (ranges_table(),), _archived, 0.5),
    Reader("NCCL flight recorder", "nccl_trace_rank_0.json", (flight_recorder_bytes(),), _trace),
    Reader("calls of a host", "rank0.json", _texts(CALLS), read_rank_calls),
    Reader("execution trace", "et.json", _texts(*(trace_text(version) for version in VERSIONS)), _execution_trace, 0.5),
    Reader("execution traces in an archive", "run.tar", (_execution_traces(),), _execution_trace, 0.2),
    Reader("profile beside an execution trace", "profile.json", _texts(profile_text()), _profile, 0.2),
    Reader("straggler parquet", "trace-X.parquet", (_straggler_bytes(),), _trace),
    *(Reader(name, kind.name, _texts(kind.write(STEP_S)), _trace) for name, kind in LOGS.items()),
    Reader("event file", "events.out.tfevents.1", (event_file(STEP_S, "step_time"),), _trace),
    Reader("kernel times", "times.csv", _texts(TIMES), _measured(FLEET)),
    Reader("nvidia-smi", "smi.csv", _texts(SMI), _measured(FLEET, "times.csv", TIMES)),
    Reader("dcgmi", "dcgm.log", _texts(DCGM), _measured(FLEET, "times.csv", TIMES.replace("GPU-a", "0").replace("GPU-b", "1"))),
    Reader("timed steps", "steps.csv", _texts(TIMED), _measured(STEPS)),
    Reader("catalogue of prices", "prices.csv", _texts(PRICES), _catalogue),
    Reader("state of a rented job", "state.json", _texts(RENTED), read_cloud_state),
    Reader("queue trace", "queue.csv", _texts(QUEUE), read_queue_trace),
    Reader("queue trace in parquet", "queue.parquet", (_queue_parquet(),), read_queue_trace),
    Reader("reliability", "mine.yaml", _texts(RELIABILITY), load_reliability),
    Reader("reliability in TOML", "mine.toml", _texts(RELIABILITY_TOML), load_reliability),
    Reader("failures", "failures.csv", _texts(FAILURES), _fitted("failures")),
    Reader("repairs", "repairs.csv", _texts(REPAIRS), _fitted("repairs"), 0.1),
    Reader("revocation", "spells.csv", _texts(SPELLS, LIVES), _fitted("revocation"), 0.1),
    Reader("checkpoints", "checkpoints.csv", _texts(SAVES), _fitted("checkpoints")),
    Reader("kernel efficiency", "gemm.csv", _texts(GEMM), _fitted("kernels")),
    Reader("overlap", "overlap.csv", _texts(OVERLAP), _measured(model_named("overlap").columns)),
    Reader("power", "power.csv", _texts(POWER), _fitted("power")),
    Reader("ladder", "ladder.csv", _texts(LADDER), _fitted("ladder")),
    Reader("totals", "totals.csv", _texts(TOTALS), _fitted("totals")),
    Reader("servers", "servers.csv", _texts(SERVERS), _fitted("servers")),
    Reader("starts", "starts.csv", _texts(STARTS), _fitted("startup")),
    Reader("saves", "saves.csv", _texts(FILES_SAVED), _fitted("saves")),
    Reader("documents", "lengths.csv", _texts(DOCUMENTS), _fitted("lengths")),
    Reader("loads of experts", "routing.csv", _texts(EXPERT_LOADS), _fitted("routing")),
    Reader("counts of experts", "counts.csv", _texts(EXPERT_LOADS), read_counts),
    Reader("links", "links.csv", _texts(LINK_TIMES), _fitted("links")),
    Reader("watched steps", "log.csv", _texts(WATCHED), watch_steps),
    Reader("run of a command", "a-1.run", (_run_file(),), _run_of_command, 0.3),
    Reader("journal of a study", "a.work", (_journal("study"),), _rows_so_far),
    Reader("journal of a search", "a.work", (_journal("search"),), _rows_so_far),
    Reader("nccl-tests", "all_reduce.log", _texts(_collectives(np.random.default_rng(0))), _measured(COLLECTIVES)),
)  # fmt: skip
