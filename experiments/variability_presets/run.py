"""Distil the variability presets from the measured tables, print every number, and write the preset files.

python experiments/variability_presets/run.py [--data ../shared/data] [--out prism_jax/variability/presets]
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.variability_presets.collectives import collective_facts
from experiments.variability_presets.spatial import DRAIN_FACTOR, spatial_facts
from experiments.variability_presets.stalls import fit_stalls
from experiments.variability_presets.temporal import step_series, temporal_facts
from prism_jax.core.kernels import COLLECTIVES

ROOT = Path(__file__).resolve().parents[2]
# Share of a step that large jobs wait for communication: turns an excess of the step into a slowdown of its communication.
EXPOSED_COMM_SHARE = 0.1

PAL = "PAL Longhorn V100 per-GPU kernel times (hal-uw/blox-pal, MIT)"
SUPERBENCH = "SuperBench v0.2.1 results (microsoft/superbench-results, MIT)"
MLPERF = "MLPerf Training v3.0-v5.1 step series of GPT-3 175B, Llama-3.1 405B and 8B (mlcommons/training_results_*, Apache-2.0)"
NCCL = "nccl-tests all-reduce on 2-64 A100 with 8 x 200 Gb/s InfiniBand (NetX-lab/Echo, MIT)"


def measure(data: Path) -> dict[str, float]:
    """All facts the presets are made of, by name; dimensionless (shares of a time)."""
    series = step_series(data)
    facts = spatial_facts(data) | collective_facts(data)
    for family in ("hopper", "blackwell"):
        facts |= {f"{family}_{name}": value for name, value in temporal_facts(series, family).items()}
    return facts | {f"stall_{name}": value for name, value in asdict(fit_stalls(series)).items()}


def presets(facts: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Preset name -> section, in the grammar of `prism_jax.variability.config`."""
    pal = facts["pal_drained_bulk_cv"]
    tuned = math.sqrt(facts["a100_gemm_cv"] * pal)
    memory = math.sqrt(facts["a100_memory_cv"] * facts["pal_pagerank_cv"])
    amd = math.sqrt(facts["mi100_gemm_cv"] * pal)
    between = (
        f"GEMM spread between GPUs: geometric mean of a lower bound (one tuned node, {facts['a100_gemm_cv']:.2%}, "
        f"{SUPERBENCH}: A100) and an upper bound (a whole untuned cluster without its {facts['pal_drained_gpus']:.0f} GPUs "
        f"beyond {DRAIN_FACTOR:g} times the median, {pal:.2%}, {PAL}); "
        "slow component from the same cluster, scaled alike. Memory-bound likewise. "
    )
    hopper = f"Step and network regime: {MLPERF}, H100 and H200. "
    shipped = {
        "v100-longhorn": _preset(
            facts, "hopper", "pal_sgemm", 1.0, facts["pal_pagerank_cv"],
            f"GPUs, nodes and repeats: {PAL}, every GPU kept: GEMM from SGEMM, memory-bound from PageRank, attention as GEMM. "
            f"Step and network regime: no V100 series, nearest is H100 of {MLPERF}. ",
        ),
        "a100-default": _preset(
            facts, "hopper", "pal_drained", tuned / pal, memory,
            between + f"Step and network regime: no A100 series of single steps, nearest is H100 of {MLPERF}. ",
        ),
        "h100-default": _preset(
            facts, "hopper", "pal_drained", tuned / pal, memory,
            between + "No per-GPU table of H100 is public: spread between GPUs as A100. " + hopper,
        ),
        "b200-default": _preset(
            facts, "blackwell", "pal_drained", tuned / pal, memory,
            between + "No per-GPU table of Blackwell is public: spread between GPUs as A100. "
            f"Step and network regime: {MLPERF}, Blackwell. ",
        ),
        "mi300x-default": _preset(
            facts, "hopper", "pal_drained", amd / pal, memory,
            f"GEMM spread between GPUs: geometric mean of the median over matrix-core kernels of an MI100 node "
            f"({facts['mi100_gemm_cv']:.2%}, {SUPERBENCH}) and of {PAL} without slow GPUs ({pal:.2%}); no per-GPU "
            "table of MI300X is public. Memory-bound: A100 and V100, as a100-default. "
            f"Step and network regime: nearest is H100 of {MLPERF}. ",
        ),
    }  # fmt: skip
    return {**shipped, "production-2025": _production(shipped["h100-default"])}


# The network of `production-2025`; what was tried is in the README beside this.
PRODUCTION_REGIME = {"kind": "mixture", "bulk_cv": 0.02, "slow_prob": 0.04, "slow_factor": 1.12, "slow_cv": 0.1}
PRODUCTION_CALL = {"kind": "mixture", "bulk_cv": 0.02, "slow_prob": 0.02, "slow_factor": 2.55, "slow_cv": 0.05}


def _production(h100: dict[str, Any]) -> dict[str, Any]:
    """H100 with the network of a production job: chosen in sight of its quantiles, nothing of it is measured here."""
    section = dict(h100)
    for name in COLLECTIVES:
        own = {"regime": PRODUCTION_REGIME, "call": PRODUCTION_CALL}
        section[name] = own if name != "p2p" else {**h100[name], "regime": PRODUCTION_REGIME}
    section["source"] = (
        "Chosen in sight of what it is held against, not fitted: p5 and p95 over p50 of the step of llama3_405b_65536 "
        "(published of a production job on 64k GPUs: 0.989, 1.027) and p99 over the median of collectives (published of nanoGPT "
        "on Perlmutter: 2.55). To h100-default it adds the network of such jobs: one collective in 50 takes 2.55 times as long, "
        "and one step in 25 meets a network 12% slower; between steps it varies by 2%. GPUs, nodes, steps and stalls: as "
        "h100-default. "
    )
    return section


def _preset(
    facts: dict[str, float], family: str, fleet: str, shrink: float, memory_cv: float, source: str
) -> dict[str, Any]:
    """One preset: `fleet` names the facts of the GPU mixture, `shrink` multiplies its spread, `family` names the step series."""
    gpu = {
        "kind": "mixture",
        "bulk_cv": facts[f"{fleet}_bulk_cv"] * shrink,
        "slow_prob": facts[f"{fleet}_slow_prob"],
        "slow_factor": 1.0 + (facts[f"{fleet}_slow_factor"] - 1.0) * shrink,
        "slow_cv": facts[f"{fleet}_slow_cv"] * shrink,
    }
    node = _log_normal(facts["pal_sgemm_node_cv"])
    math_bound = {"gpu": gpu, "node": node, "call": _normal(facts["pal_sgemm_within_gpu_cv"])}
    memory = {"gpu": _log_normal(memory_cv), "node": node, "call": _normal(facts["pal_pagerank_within_gpu_cv"])}
    network = {"regime": _regime(facts, family), "call": _log_normal(facts["allreduce_repeat_cv"])}
    shared = (
        f"Node share and repeats on one GPU: {PAL}. Repeats of collectives: {NCCL}, all-reduce, used for every collective. "
        f"Slow network regime: mild excess of steps (3 to 6 sd) over an assumed exposed share of {EXPOSED_COMM_SHARE:.0%}. "
        "Stalls: the same series, all GPUs together; large ones whatever the size of the job, small ones that grow with it. "
        f"Attention varies like GEMM for want of data. Links of nodes: no data, left constant."
    )
    section: dict[str, Any] = {"source": source + shared}
    section |= {"gemm": math_bound, "attention": math_bound, "memory": memory}
    section |= dict.fromkeys(COLLECTIVES, network)
    section["step"] = _normal(facts[f"{family}_step_cv"])
    section["step_ar1"] = facts[f"{family}_step_ar1"]
    section["stalls"] = [
        {"step_prob": facts["stall_large_prob"], "mean_fraction": facts["stall_large"]},
        {
            "gpu_prob": facts["stall_gpu_prob"],
            "gpu_exponent": facts["stall_gpu_exponent"],
            "mean_fraction": facts["stall_small"],
        },
    ]
    return section


def _regime(facts: dict[str, float], family: str) -> dict[str, Any]:
    """Network regime: repeatability in the bulk; the mild, one-sided excess of steps (3 to 6 sd) as a slow component."""
    slow_factor = 1.0 + facts[f"{family}_mild_excess"] / EXPOSED_COMM_SHARE
    return {
        "kind": "mixture",
        "bulk_cv": facts["allreduce_repeat_cv"],
        "slow_prob": facts[f"{family}_mild_prob"],
        "slow_factor": slow_factor,
        "slow_cv": facts[f"{family}_mild_excess_sd"] / EXPOSED_COMM_SHARE / slow_factor,
    }


def _normal(cv: float) -> dict[str, Any]:
    return {"kind": "normal", "cv": cv}


def _log_normal(cv: float) -> dict[str, Any]:
    return {"kind": "log_normal", "cv": cv}


SCRIPT = "experiments/variability_presets/run.py"


def toml_text(name: str, section: dict[str, Any], script: str = SCRIPT) -> str:
    """The section as TOML, written by `script`; numbers to four significant digits."""
    scalars = [f"name = {_toml(name)}"] + [
        f"{k} = {_toml(section[k])}" for k in ("source", "step_ar1", "step", "stalls")
    ]
    tables = [k for k, v in section.items() if isinstance(v, dict) and k != "step"]
    blocks = ["\n".join([f"[{k}]", *(f"{part} = {_toml(v)}" for part, v in section[k].items())]) for k in tables]
    head = f"# Written by {script}; change that, not this."
    return "\n\n".join(["\n".join([head, *scalars]), *blocks]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.strip() + '"'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    text = f"{value:.4g}"
    return text if any(c in text for c in ".e") else text + ".0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--out", type=Path, default=ROOT / "prism_jax" / "variability" / "presets")
    args = parser.parse_args()
    if not (args.data / "variability").is_dir():
        sys.exit(f"no measured tables under {args.data}; name their folder with --data")
    facts = measure(args.data)
    for name, value in facts.items():
        print(f"{name:32s} {value:.6g}")
    for name, section in presets(facts).items():
        (args.out / f"{name}.toml").write_text(toml_text(name, section), encoding="utf-8")
        print(f"wrote {name}.toml", file=sys.stderr)


if __name__ == "__main__":
    main()
