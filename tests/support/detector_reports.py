"""Reports of straggler detectors as they print them, of GPUs whose slowdowns are known; texts are our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np

N_GPU, PER_NODE = 64, 8
SLOW = {5: 1.25, 22: 1.12, 50: 1.60}  # rank -> factor
SIZES = ("1024x1024x1024", "4096x4096x4096", "8192x8192x8192")


def factors(seed: int = 0, n: int = N_GPU, slow: Mapping[int, float] = SLOW) -> np.ndarray:
    """Factors on time [rank] around 1, with those of `slow` ranks."""
    found = np.exp(0.004 * np.random.default_rng(seed).standard_normal(n))
    for rank, factor in slow.items():
        found[rank % n] = factor
    return found


def host(rank: int) -> str:
    """The host of a rank."""
    return f"gpu{rank // PER_NODE:03d}"


def _repeats(x: np.ndarray, n: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, 1])
    return [x * np.exp(0.003 * rng.standard_normal(len(x))) for _ in range(n)]


def nvrx(x: np.ndarray, seed: int = 0, n_report: int = 5, worst: int = 5) -> str:
    """A log of NeMo with NVRx: worst and best ranks, relative and individual."""
    out = [" iteration        1/     100 | elapsed time per iteration (ms): 731.2 |"]
    for own in _repeats(x, n_report, seed):
        for kind, score in (("relative", own.min() / own), ("individual", np.full(len(own), 0.99))):
            order = np.argsort(score)
            out += ["[NeMo I 2026-03-01 10:00:00 straggler:88] ", f"GPU {kind} performance:"]
            out.append(f" Worst performing {worst}/{len(x)} ranks:")
            out += [f"  Rank={r} Node={host(r)} Score={score[r]:.2f}" for r in order[:worst]]
            out.append(f" Best performing {worst}/{len(x)} ranks:")
            out += [f"  Rank={r} Node={host(r)} Score={score[r]:.2f}" for r in order[::-1][:worst]]
            out.append("")
        out.append(" Straggler report processing time: 0.042 sec.")
    return "\n".join(out) + "\n"


def nvrx_dicts(x: np.ndarray, seed: int = 0, n_report: int = 5) -> str:
    """What `print(report.gpu_relative_perf_scores)` leaves in a log."""
    out = []
    for own in _repeats(x, n_report, seed):
        scores = {rank: round(float(own.min() / t), 4) for rank, t in enumerate(own)}
        out.append(f"Rank 0 GPUs relative perf: {scores}")
        out.append(f"Rank 0 GPUs individual perf: {dict.fromkeys(scores, 1.0)}")
    return "\n".join(out) + "\n"


def megatron_straggler(x: np.ndarray, seed: int = 0, n_report: int = 5, n: int = 8) -> str:
    """A log of Megatron with --log-straggler and --straggler-minmax-count."""
    out = []
    for at, own in enumerate(_repeats(x, n_report, seed)):
        rtt, etpt = 3453.0 * own, 297.0 / own
        lo, hi = int(np.argmin(etpt)), int(np.argmax(etpt))
        out.append(
            f" [2026-03-01 10:{at:02d}:00] iteration {10 * (at + 1):8d}/ 1000 | elapsed time per iteration (ms): 4011.2 |"
        )
        out.append(
            f" 0: INFO:megatron.core.utils:[2026-03-01 10:{at:02d}:56] | MnRtt/Rnk: {rtt[hi]:.2f}ms/{hi} | "
            f"MxRtt/Rnk: {rtt[lo]:.2f}ms/{lo} | MnPwr/Rnk: 601796.00W/8 | MxPwr/Rnk: 683801.00W/18 | MnTmp/Rnk: 52.00C/0 | "
            "MxTmp/Rnk: 65.00C/21 | MnUtl/Rnk: 97.00%/8 | MxUtl/Rnk: 100.00%/6 | MnClk/Rnk: 1950.00MHz/28 | "
            "MxClk/Rnk: 1980.00MHz/0 | MnDRtt/Rnk: 14.27ms/23 | MxDRtt/Rnk: 34.65ms/3 | "
            f"MnEtpt/Rnk: {etpt[lo]:.2f}TF/{lo} | MxEtpt/Rnk: {etpt[hi]:.2f}TF/{hi}"
        )
        order = np.argsort(etpt)
        for name, ranks in (
            (f"Bottom {n} Ranks with lowest ", order[:n]),
            (f"Top    {n} Ranks with highest", order[-n:]),
        ):
            out.append(
                f" 0: INFO:megatron.core.utils:^^^^ {name} Etpt(TF): " + " ".join(f"{etpt[r]:.2f}/{r}," for r in ranks)
            )
    return "\n".join(out) + "\n"


def megatron_sniff_test(x: np.ndarray, seed: int = 0, n_report: int = 3) -> str:
    """A log of Megatron with --gpu-sniff-test-interval."""
    out = []
    for at, own in enumerate(_repeats(x, n_report, seed)):
        out += ["=" * 60, f"  GPU sniff test -- iteration {100 * at}", "=" * 60]
        for name, value in (
            ("GEMM throughput (8192x8192x8192, bf16) [TFLOP/s/GPU]", 720.0 / own),
            ("GEMM throughput (4096x4096x16384, bf16) [TFLOP/s/GPU]", 690.0 / own),
            ("All-reduce busbw (global PG, size=64, 268 MB) [GB/s]", np.full(len(own), 180.0)),
        ):
            median = float(np.median(value))
            out.append(
                f"  {name}: median={median:.2f}, mean={value.mean():.2f}, min={value.min():.2f}, max={value.max():.2f}"
            )
            for rank in np.flatnonzero(np.abs(value - median) > 0.1 * median).tolist():
                out.append(
                    f"    OUTLIER rank {rank} ({host(rank)}): {value[rank]:.2f} ({(value[rank] - median) / median:+.1%})"
                )
        out += ["  Result: OUTLIERS DETECTED", "=" * 60]
    return "\n".join(out) + "\n"


def primus_markdown(x: np.ndarray, seed: int = 0) -> str:
    """The report of Primus preflight in Markdown."""
    rng = np.random.default_rng([seed, 2])
    out = ["# Square Gemm Perf", ""]
    flops = {s: 1100.0 * (at + 1) / 3 / x * np.exp(0.003 * rng.standard_normal(len(x))) for at, s in enumerate(SIZES)}
    for title in ("=======Square GEMM Latency (us)=======", "=======Square GEMM TFLOPS ======="):
        out += [title, "| Hostname | Node | Rank | " + " | ".join(f"{s:<14}" for s in SIZES) + "|"]
        out.append("|----------|----------|----------" + "|----------" * len(SIZES) + "|")
        for rank in range(len(x)):
            values = [1e4 / flops[s][rank] if "Latency" in title else flops[s][rank] for s in SIZES]
            cells = " | ".join(f"{value:<14.2f}" for value in values)
            out.append(f"| {host(rank)} | {rank // PER_NODE} | {rank} | {cells}|")
        out.append("")
    return "\n".join(out) + "\n"


def primus_log(x: np.ndarray, seed: int = 0) -> str:
    """The same report as it is logged."""
    rows = [line for line in primus_markdown(x, seed).splitlines() if not line.startswith("|--")]
    return "\n".join(" ".join(line.replace("|", " ").split()) if line.startswith("|") else line for line in rows) + "\n"


def primus_nodes(x: np.ndarray, seed: int = 0) -> str:
    """The report of the node smoke test: min / median / max over the GPUs of a node."""
    out = ["## Tier 2 perf summary", ""]
    out += [
        "| Node | Hostname | GEMM TFLOPS (min/med/max) | HBM GB/s (min/med/max) | Local RCCL GB/s |",
        "|---|---|---|---|---|",
    ]
    for node in range(len(x) // PER_NODE):
        own = x[node * PER_NODE : (node + 1) * PER_NODE]
        gemm, hbm = np.sort(680.0 / own), np.sort(4100.0 / own)
        stats = [f"{v[0]:.1f} / {v[len(v) // 2]:.1f} / {v[-1]:.1f}" for v in (gemm, hbm)]
        out.append(f"| {node} | {host(node * PER_NODE)} | {stats[0]} | {stats[1]} | 312.4 |")
    return "\n".join(out) + "\n"


def primus_verdict(x: np.ndarray, seed: int = 0) -> str:
    """Verdicts of the node smoke test in JSON, of all nodes in a list."""
    nodes = []
    for node in range(len(x) // PER_NODE):
        own = x[node * PER_NODE : (node + 1) * PER_NODE]
        gpus = [
            {
                "gpu": at,
                "status": "PASS",
                "details": {"gemm_tflops": round(680.0 / f, 1), "hbm_gbs": round(4100.0 / f, 1)},
            }
            for at, f in enumerate(own)
        ]
        nodes.append({"host": host(node * PER_NODE), "node_rank": node, "status": "PASS", "tier1": {"per_gpu": gpus}})
    return json.dumps(nodes)


def traceml(x: np.ndarray, seed: int = 0) -> str:
    """A final summary of TraceML, schema 1.7."""
    rows = {}
    for rank, factor in enumerate(x):
        identity = {
            "global_rank": rank, "hostname": host(rank), "local_rank": rank % PER_NODE, "local_world_size": PER_NODE,
            "node_rank": rank // PER_NODE, "world_size": len(x),
        }  # fmt: skip
        metrics = {
            "forward_ms": 100.0 * factor, "backward_ms": 200.0 * factor, "compute_ms": 310.0 * factor,
            "step_time_ms": 431.0, "residual_ms": 431.0 - 310.0 * factor, "step_time_gpu_ms": None,
        }  # fmt: skip
        rows[str(rank)] = {"identity": identity, "metrics": metrics}
    section = {
        "global": {"index_by": "global_rank"},
        "groups": {"by": "global_rank", "rows": rows},
        "units": {"time": "ms"},
    }
    return json.dumps({"schema_version": "1.7", "step_time": section})


def readiness(x: np.ndarray, seed: int = 0) -> str:
    """A report of NVIDIA's cluster readiness engine of jobs on single nodes."""
    nodes = [
        (host(at * PER_NODE), float(x[at * PER_NODE : (at + 1) * PER_NODE].max())) for at in range(len(x) // PER_NODE)
    ]
    domains = [
        {"name": name, "nodeCount": 1, "goodput": "0.90", "tflops": f"{540.0 / f:.1f}", "stepTime": f"{2.85 * f:.2f}s"}
        for name, f in nodes
    ]
    training = {
        "domain": "training",
        "variant": "nemotron5-8b",
        "status": "Succeeded",
        "nodesPerJob": 1,
        "domains": domains,
    }
    nccl = {"domain": "communication", "variant": "nccl-all-reduce", "status": "Succeeded",
            "bandwidth": [{"size": "16 GB", "algBW": "260.20 GB/s", "busBW": "487.87 GB/s", "samples": 65}]}  # fmt: skip
    return json.dumps(
        {"name": "cert", "platform": "aws", "gpu": "h100", "totalNodes": len(nodes), "categories": [nccl, training],
         "failedNodes": [], "result": "PASSED", "nodeResults": []}
    )  # fmt: skip


def readiness_record(x: np.ndarray, seed: int = 0) -> str:
    """The record of a certification: one attempt per node and iteration."""
    iterations = []
    for index in range(3):
        groups = []
        for at in range(len(x) // PER_NODE):
            factor = float(x[at * PER_NODE : (at + 1) * PER_NODE].max())
            goodput = {"avgTFLOPSPerGPU": f"{540.0 / factor:.1f}", "avgStepTimeSec": f"{2.85 * factor:.3f}"}
            attempt = {"index": 0, "jobOutcome": "SUCCEEDED", "measurements": [{"kind": "Goodput", "goodput": goodput}]}
            groups.append({"name": f"g{at}", "nodes": [host(at * PER_NODE)], "attempts": [attempt]})
        iterations.append({"index": index, "final": index == 2, "groups": groups})
    category = {"domain": "training", "variant": "nemotron5-8b", "iterations": iterations}
    return json.dumps({"schemaVersion": "1.0.0", "kind": "CertificationResult", "nodes": [], "categories": [category]})


def _labels(rank: int) -> str:
    at = rank % PER_NODE
    return f'gpu="{at}",UUID="GPU-{rank:08d}",device="nvidia{at}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host(rank)}"'


def dcgm_exporter(x: np.ndarray, seed: int = 0, n_report: int = 3) -> str:
    """Scrapes of the DCGM exporter, one behind the other; the last finds every GPU idle."""
    out = []
    for at, own in enumerate([*_repeats(x, n_report, seed), np.full(len(x), 5.7)]):
        idle = at == n_report
        for name, value in (
            ("DCGM_FI_DEV_SM_CLOCK", 1980.0 / own),
            ("DCGM_FI_DEV_MEM_CLOCK", np.full(len(x), 2619.0)),
            ("DCGM_FI_DEV_GPU_UTIL", np.full(len(x), 0.0 if idle else 99.0)),
            ("DCGM_FI_DEV_POWER_USAGE", np.full(len(x), 71.5 if idle else 655.25)),
        ):
            out += [f"# HELP {name} of the device.", f"# TYPE {name} gauge"]
            out += [f"{name}{{{_labels(rank)}}} {value[rank]:.6g}" for rank in range(len(x))]
    return "\n".join(out) + "\n"


def prometheus(x: np.ndarray, seed: int = 0, n_report: int = 20) -> str:
    """The answer to a range query of SM clocks."""
    repeats = _repeats(x, n_report, seed)
    result = [
        {
            "metric": {
                "__name__": "DCGM_FI_DEV_SM_CLOCK",
                "gpu": str(rank % PER_NODE),
                "Hostname": host(rank),
                "job": "dcgm",
            },
            "values": [[1772000000.5 + 15 * at, f"{1980.0 / own[rank]:.0f}"] for at, own in enumerate(repeats)],
        }
        for rank in range(len(x))
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


REPORTS: dict[str, tuple[str, str, Callable[..., str]]] = {  # case -> detector, file, text
    "nvrx": ("nvrx", "train.log", nvrx),
    "nvrx, dicts": ("nvrx", "train.log", nvrx_dicts),
    "megatron-straggler": ("megatron-straggler", "train.log", megatron_straggler),
    "megatron-sniff-test": ("megatron-sniff-test", "train.log", megatron_sniff_test),
    "primus-preflight": ("primus-preflight", "preflight_report_perf.md", primus_markdown),
    "primus-preflight, log": ("primus-preflight", "preflight.log", primus_log),
    "primus-preflight, nodes": ("primus-preflight", "smoke_report.md", primus_nodes),
    "primus-smoke-test": ("primus-smoke-test", "smoke.json", primus_verdict),
    "traceml": ("traceml", "final_summary.json", traceml),
    "nvcre": ("nvcre", "report.json", readiness),
    "nvcre, record": ("nvcre", "record.json", readiness_record),
    "dcgm-exporter": ("dcgm-exporter", "metrics.prom", dcgm_exporter),
    "prometheus": ("prometheus", "range.json", prometheus),
}
OF_NODES = ("primus-preflight, nodes", "nvcre", "nvcre, record")  # which name no GPU
