"""Do captures of PyTorch networks say what closed forms and our own specs say of the same networks?

    python experiments/capture/torch_transformers/run.py [--only gpt2] [--fusion eager] [--graphs] [--parts] [--show] [--no-steps]

Reads the captures that `record.py` wrote (or `--captures FOLDER`). Compared per rank: FLOPs with a closed form written down here,
products (m, n, k) weighted by FLOPs, bytes per axis, and the noise-free step with that of a job whose model is a spec, both under
the same fusion policy: `fused` (chains are one kernel) or `eager` (every operation is one).
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax

from experiments.capture.torch_transformers.parts import show_parts
from experiments.common import start
from prism_jax import Job, ParallelPlan, Variability, predict, presets, read_capture
from prism_jax.capture.from_job import program_of_job
from prism_jax.framework.software import Software
from prism_jax.plan.fields import StateDtypes
from prism_jax.workload.captured.check import plan_fields
from prism_jax.workload.captured.model import CapturedModel
from prism_jax.workload.captured.program import RankClass, RankProgram, exchange_of

QUIET = Variability(name="none")
# What the networks of `networks.py` run on a GPU: no compiler; norms and attention in one kernel; the rest by the fusion policy.
PLAIN = Software(attention="flash2", norm="fused", optimizer="eager", compile=False)
POLICIES = ("fused", "eager")


class Sizes(NamedTuple):
    """A network of `networks.py` as plain numbers; `active` experts work on a token, 1 for a plain MLP."""

    preset: str
    vocab: int
    layers: int
    hidden: int
    kv: int
    ffn: int
    n_in: int
    batch: int
    seq_len: int
    causal: bool = True
    experts: int = 0
    active: int = 1
    predicted: int = 0


NETWORKS = {
    "gpt2": Sizes("gpt2", 50304, 12, 768, 768, 3072, 1, 8, 1024),
    "llama2_7b": Sizes("llama-2-7b", 32000, 32, 4096, 4096, 11008, 2, 1, 4096),
    "mixtral_8x7b": Sizes("mixtral-8x7b", 32000, 32, 4096, 1024, 14336, 2, 1, 4096, True, 8, 2),
    "bert_large": Sizes("bert-large", 30528, 24, 1024, 1024, 4096, 1, 8, 512, False, 0, 1, 77),
}


def closed_flops(sizes: Sizes, tp: int, pp: int, stage: int) -> float:
    """FLOPs of a rank and a micro-batch: forward and twice as many backward; gradients of norms and sums are not counted."""
    h, tokens = sizes.hidden, sizes.batch * sizes.seq_len
    products = h * (h + 2 * sizes.kv) + h * h + sizes.active * (sizes.n_in + 1) * h * sizes.ffn
    seen = (sizes.seq_len + 1) / 2 if sizes.causal else sizes.seq_len
    layer = 2.0 * tokens * (products + 2 * seen * h) / tp + 2.0 * tokens * h * sizes.experts
    total = layer * sizes.layers / pp
    if stage == pp - 1:
        predicted = sizes.batch * (sizes.predicted or sizes.seq_len)
        total += 2.0 * predicted * h * sizes.vocab / tp
        total += 2.0 * (predicted + sizes.batch) * h * h if not sizes.causal else 0.0
    return 3.0 * total


def software(sizes: Sizes, fusion: str, graphs: bool) -> Software:
    """What the code runs; a plain activation has no pass for its bias, which torch adds inside the product."""
    activation = "fused" if sizes.n_in == 1 else fusion
    graphed = "step" if graphs else None
    return replace(PLAIN, activation=activation, rope=fusion, cross_entropy=fusion, cuda_graphs=graphed)


def spec_job(sizes: Sizes, program: RankProgram, fusion: str, graphs: bool = False) -> Job:
    """The same job with one of our specs for a model.

    Notes:
        FSDP2 copies parameters and gradients. Where nothing is fused, DDP copies gradients into its buckets, and those of several
        micro-batches are added, in passes of their own; else products write them where they belong.
    """
    known = {name: value for name, value in plan_fields(program).items() if name != "state_dtypes"}
    has_own_pass = program.micro_batches > 1 or "dp" in program.axes
    plan = ParallelPlan(
        **known | {"seq_len": sizes.seq_len},
        software=software(sizes, fusion, graphs),
        state_dtypes=StateDtypes(grad_reduce="bf16"),
        fused_grad_accumulation=fusion == "fused" or not has_own_pass,
        shard_copies=True,
    )
    model = replace(presets.model(sizes.preset), vocab=sizes.vocab)
    if not sizes.causal:
        model = replace(model, predicted=sizes.predicted / sizes.seq_len, tied_embeddings=False)
    if sizes.preset == "gpt2":
        model = replace(model, dropout=False, tied_embeddings=False)
    return Job(model=model, cluster=presets.cluster("dgx-h100", n_devices=program.world), plan=plan, variability=QUIET)


def captured_job(program: RankProgram, job: Job, fusion: str) -> Job:
    """The job with the captured program for a model."""
    program = replace(program, fusion=fusion)
    known = {name: value for name, value in plan_fields(program).items() if name != "state_dtypes"}
    plan = replace(job.plan, **known)
    return replace(job, model=CapturedModel(program), plan=plan, calibration=job.effective_calibration)


def products(one: RankClass) -> Counter[tuple[int, ...]]:
    """FLOPs of all products of a rank by (m, n, k), whatever the order of factors."""
    found: Counter[tuple[int, ...]] = Counter()
    for op, n in one.ops:
        if op.kind == "gemm" and op.phase != "opt":
            found[tuple(sorted(op.shape[1:]))] += round(n * op.flops)
    return found


def shared(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> float:
    """FLOPs in both over those of the larger."""
    both = sum(min(n, other[key]) for key, n in one.items())
    return both / max(sum(one.values()), sum(other.values()), 1)


def axis_bytes(program: RankProgram, one: RankClass) -> Counter[str]:
    """Bytes of a rank by axis of the plan and what they carry; exchanges of gradients and parameters once per step."""
    found: Counter[str] = Counter()
    for comm, n in one.comms:
        role = program.role(comm.axis)
        what = exchange_of(comm, role)
        if comm.n_bytes > 64:
            found[f"{role} {what}"] += round(n * comm.n_bytes)
    return found


def off_bytes(found: Counter[str], expected: Counter[str]) -> float:
    """Largest relative difference of an axis."""
    keys = set(found) | set(expected)
    return max((abs(found[key] / expected[key] - 1.0) if expected[key] else 1.0 for key in keys), default=0.0)


def step_s(job: Job) -> float:
    """Seconds of a step without variability."""
    return float(predict(job, key=jax.random.key(0), n_samples=64).quantile(0.5))


def compared(name: str, program: RankProgram, fusion: str, *, steps: bool, graphs: bool) -> dict[str, float]:
    """Figures of a capture, the worst of its stages."""
    network, _, _ = name.partition("-")
    sizes = NETWORKS[network]
    job = spec_job(sizes, program, fusion, graphs)
    spec = program_of_job(job)
    tp, pp = program.degree("tp"), program.degree("pp")
    pairs = list(zip(program.classes, spec.classes, strict=True))
    flops = [one.flops() / closed_flops(sizes, tp, pp, one.stage) - 1.0 for one, _ in pairs]
    found = {
        "flops": max(flops, key=abs),
        "products": min(shared(products(one), products(other)) for one, other in pairs),
        "bytes": max(off_bytes(axis_bytes(program, one), axis_bytes(spec, other)) for one, other in pairs),
    }
    if steps:
        found["spec_s"], found["captured_s"] = step_s(job), step_s(captured_job(program, job, fusion))
        found["step"] = found["captured_s"] / found["spec_s"] - 1.0
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=Path, default=Path(__file__).parent / "captures")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-steps", action="store_true")
    parser.add_argument(
        "--graphs", action="store_true", help="the step is replayed from a CUDA graph: no host limits it"
    )
    parser.add_argument("--fusion", choices=POLICIES, default=POLICIES[0])
    parser.add_argument("--parts", action="store_true", help="seconds by kind, captured and spec")
    parser.add_argument("--show", action="store_true", help="bytes by axis and products that are not in both")
    args = parser.parse_args()
    start()
    print(
        f"{'capture':<20} {'FLOPs off':>10} {'products':>9} {'bytes off':>10} {'spec s':>9} {'captured':>9} {'off':>7}"
    )
    for file in sorted(args.captures.glob("*.capture.gz")):
        name = file.name.removesuffix(".capture.gz")
        if args.only not in name:
            continue
        program = read_capture(file)
        found = compared(name, program, args.fusion, steps=not args.no_steps, graphs=args.graphs)
        text = f"{name:<20} {found['flops']:>+10.4%} {found['products']:>9.2%} {found['bytes']:>10.2%}"
        if "step" in found:
            text += f" {found['spec_s']:>9.4f} {found['captured_s']:>9.4f} {found['step']:>+7.1%}"
        print(text, flush=True)
        if args.show:
            show(name, program)
        if args.parts and not args.no_steps:
            job = spec_job(NETWORKS[name.partition("-")[0]], program, args.fusion, args.graphs)
            show_parts(job, captured_job(program, job, args.fusion))


def show(name: str, program: RankProgram) -> None:
    """What differs, stage by stage."""
    spec = program_of_job(spec_job(NETWORKS[name.partition("-")[0]], program, "eager"))
    for one, other in zip(program.classes, spec.classes, strict=True):
        print("   ", one.name, dict(axis_bytes(program, one)), "spec", dict(axis_bytes(spec, other)))
        mine, own = products(one), products(other)
        print("    captured alone", dict(mine - own), "spec alone", dict(own - mine))
        for program_name, rows in (("captured", one), ("spec", other)):
            memory = sum(
                op.n_bytes * n for op, n in rows.ops if op.kind in ("memory", "embedding") and op.phase != "opt"
            )
            gemm = sum(op.n_bytes * n for op, n in rows.ops if op.kind in ("gemm", "attention") and op.phase != "opt")
            update = sum(op.n_bytes * n for op, n in rows.ops if op.phase == "opt")
            print(f"    {program_name}: memory {memory:.4g}, products {gemm:.4g}, optimizer {update:.4g} bytes")


if __name__ == "__main__":
    main()
