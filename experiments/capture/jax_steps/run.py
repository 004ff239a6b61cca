"""Do steps captured from JAX have the FLOPs, products and bytes that closed forms and our own descriptions of the models have?

python experiments/capture/jax_steps/run.py [NAME ...] [--again]

Four models on three meshes (`steps.py`), compiled here for 4 or 8 virtual devices. Compared are FLOPs of products per rank with
the closed form, products by their sizes weighted by FLOPs with our own description of the model, and bytes per axis with it.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from math import prod
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[2]))

from steps import MESHES, MODELS, PER_RANK, name_of  # noqa: E402
from whole_step import PLAN, captured_job, in_layers, show, step_s  # noqa: E402

from experiments.common import check, start  # noqa: E402
from prism_jax.capture.from_job import program_of_job  # noqa: E402
from prism_jax.capture.front_end import FRONT_ENDS, CaptureRequest  # noqa: E402
from prism_jax.job.job import Job  # noqa: E402
from prism_jax.plan.fields import StateDtypes  # noqa: E402
from prism_jax.plan.plan import ParallelPlan  # noqa: E402
from prism_jax.system.catalog import cluster  # noqa: E402
from prism_jax.variability.tree import Variability  # noqa: E402
from prism_jax.workload.captured.fusion import fused  # noqa: E402
from prism_jax.workload.captured.program import RankProgram  # noqa: E402
from prism_jax.workload.catalog import model  # noqa: E402
from prism_jax.workload.transformer.spec import TransformerSpec  # noqa: E402

Products = dict[tuple[int, tuple[int, ...]], float]
Bytes = dict[tuple[str, str], float]


def captured(name: str, mesh: str, again: bool) -> RankProgram:
    """The step, compiled for as many devices as its mesh has."""
    source = f"{HERE / 'steps.py'}:{name_of(name, mesh, again)}"
    request = CaptureRequest(source, world=prod(MESHES[mesh].values()), fusion="fused")
    return FRONT_ENDS.named("jax").capture(request)


def described(name: str, mesh: str, again: bool) -> Job:
    """The same step by our own description: the sizes that the code has, no fused attention, gradients reduced in 16 bits."""
    along, (_, seq_len) = MESHES[mesh], MODELS[name]
    tp, dp = along.get("tp", 1), along.get("dp", 1) * along.get("fsdp", 1)
    plan = ParallelPlan(
        micro_batch=PER_RANK,
        global_batch=PER_RANK * dp,
        seq_len=seq_len,
        tp=tp,
        dp=dp,
        sharding="fsdp" if "fsdp" in along else "none",
        recompute="full" if again else "none",
        state_dtypes=StateDtypes(grad_reduce="bf16"),
        **PLAN,
    )
    return Job(spec_of(name), cluster("dgx-h100", plan.n_devices), plan, Variability(name="none"), name=name)


def spec_of(name: str) -> TransformerSpec:
    """Our description, as the code has the model: no biases, no dropout, no positions that are learned."""
    sizes, seq_len = MODELS[name]
    base = model("gpt2-medium" if name == "bert-large" else name)
    plain = {"vocab": sizes.vocab, "norm": "rms", "bias": False, "tied_embeddings": False, "dropout": False}
    return replace(base, **plain, max_seq_len=seq_len, position="rope" if sizes.gated else "none")


def closed_flops(name: str, mesh: str, again: bool) -> float:
    """Of all products of a rank: 2 per weight and token and pass, and two squares of scores per head.

    Again: a fourth pass, without the last product of a dense layer, whose result nobody reads again.
    """
    sizes, seq_len = MODELS[name]
    d, tp = sizes.hidden, MESHES[mesh].get("tp", 1)
    head = d // sizes.n_heads
    attention = d * head * (sizes.n_heads + 2 * sizes.kv_heads) + d * d
    mlp = (3 if sizes.gated else 2) * d * sizes.ffn * (sizes.top_k if sizes.n_experts else 1)
    layer = (attention + mlp) / tp + d * sizes.n_experts + 2 * seq_len * d / tp
    more = layer - (0 if sizes.n_experts else d * sizes.ffn / tp) if again else 0.0
    return 2.0 * PER_RANK * seq_len * (sizes.n_layers * (3 * layer + more) + 3 * d * sizes.vocab / tp)


def products(program: RankProgram) -> Products:
    """FLOPs by (batch, sizes): the order of m, n and k does not count, since a product may be done transposed."""
    found: Products = defaultdict(float)
    for op, n in program.classes[0].ops:
        if op.kind == "gemm":
            batch, *sizes = op.shape
            found[batch, tuple(sorted(sizes))] += op.flops * n
    return found


def overlap(one: Products, other: Products) -> float:
    """Share of the FLOPs that both have at the same sizes."""
    both = sum(min(one[key], other[key]) for key in one.keys() & other.keys())
    return both / max(sum(one.values()), sum(other.values()))


def bytes_by_role(program: RankProgram, least: int = 1) -> Bytes:
    """By axis of a plan and kind of collective; of collectives that run at least `least` times: those of layers."""
    found: Bytes = defaultdict(float)
    for comm, n in program.classes[0].comms:
        found[program.role(comm.axis), comm.collective] += comm.n_bytes * n if n >= least else 0.0
    return found


def layer_bytes(program: RankProgram) -> Bytes:
    """The same of our own description, without embedding and head."""
    found: Bytes = defaultdict(float)
    for comm, n in program.classes[0].comms:
        if comm.module not in ("embedding", "head"):
            found[program.role(comm.axis), comm.collective] += comm.n_bytes * n
    return found


def difference(got: Bytes, expected: Bytes, role: str) -> float:
    """Of all bytes along an axis, relative."""
    mine, theirs = (sum(n for (other, _), n in one.items() if other == role) for one in (got, expected))
    return mine / theirs - 1


def _expert_sums(name: str) -> float:
    """Bytes more where what experts give is summed over tp before it is combined: top_k copies of every token, in both passes."""
    sizes, seq_len = MODELS[name]
    return 2.0 * sizes.n_layers * (sizes.top_k - 1) * PER_RANK * seq_len * sizes.hidden * 2.0


def compare(name: str, mesh: str, again: bool) -> dict[str, float]:
    """Figures of a case."""
    program, job = captured(name, mesh, again), described(name, mesh, again)
    own = program_of_job(job)
    mine, theirs = products(program), products(own)
    figures = {
        "flops": sum(mine.values()) / closed_flops(name, mesh, again) - 1,
        "products": overlap(mine, theirs),
    }
    got, expected = bytes_by_role(program), bytes_by_role(own)
    for key in sorted(set(got) | set(expected)):
        print(f"    {' '.join(key):20} captured {got[key] / 1e6:12.3f} MB, described {expected[key] / 1e6:12.3f} MB")
    for role in sorted({role for role, _ in expected}):
        figures[f"bytes {role}"] = difference(got, expected, role)
        if mesh == "fsdp8":
            inside = bytes_by_role(program, MODELS[name][0].n_layers), layer_bytes(own)
            figures[f"bytes {role} in layers"] = difference(*inside, role)
    kernels = [fused(one.classes[0], one.fusion) for one in (program, own)]
    traffic = [sum(op.n_bytes * n for op, n in one.ops if op.phase != "opt") for one in kernels]
    print(f"    bytes of device memory: captured {traffic[0] / 1e9:.1f} GB, described {traffic[1] / 1e9:.1f} GB")
    if MODELS[name][0].n_experts and "tp" in MESHES[mesh]:
        figures["bytes tp, experts' sums first"] = (
            sum(got.values()) / (sum(expected.values()) + _expert_sums(name))
        ) - 1
    other = captured_job(program, job)
    figures["step"] = step_s(other) / step_s(job) - 1
    show(job, other)
    if mesh == "fsdp8":
        inside = [captured_job(in_layers(one, MODELS[name][0].n_layers), job) for one in (program, own)]
        figures["step, collectives of layers"] = step_s(inside[0]) / step_s(inside[1]) - 1
    for key in sorted(mine.keys() ^ theirs.keys()):
        who = "captured" if key in mine else "described"
        print(f"    only {who}: {key} {max(mine[key], theirs[key]) / sum(mine.values()):.3%}")
    return figures


def main() -> int:
    """Prints one line per case; exit code 1 where a figure is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--again", action="store_true", help="rematerialised layers too")
    asked = parser.parse_args()
    start()
    found = {}
    for name in asked.names:
        for mesh in MESHES:
            for again in (False, True) if asked.again else (False,):
                row = name_of(name, mesh, again)
                print(row, flush=True)
                found[row] = compare(name, mesh, again)
                print("   ", ", ".join(f"{key} {value:.4%}" for key, value in found[row].items()), flush=True)
    return check(found, HERE / "expected.json")


if __name__ == "__main__":
    sys.exit(main())
