"""Are all execution traces read, do their profiles fit them, and do the kernels of one GPU tell those of the others?

python experiments/capture/execution_traces/run.py [--data FOLDER] [--check]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from prism_jax.capture.execution.kernel_times import timed_ops
from prism_jax.capture.execution.measured import measure
from prism_jax.capture.execution.profiled_ops import Profile, read_profile_ops
from prism_jax.capture.execution.program import TracedRank, read_traces
from prism_jax.capture.execution.trace import ExecutionTrace, documents, read_execution_trace
from prism_jax.workload.captured.kernel_times import KernelTimes, with_times
from prism_jax.workload.captured.program import CapturedOp, RankClass, RankProgram

DATA = Path(__file__).resolve().parents[3] / ".." / "shared" / "data" / "formats"
LINEAR, DLRM = ("linear_et.json.gz", "linear_kineto.json.gz"), ("dlrm_pytorch_et.tar.gz", "dlrm_kineto.tar.gz")
RESNET = "resnet_1gpu_et.json.gz"
RESNET_MULTIPLY_ADDS = 4.089e9  # of ResNet-50 at 224 x 224, forward: `_ops` of its weights in torchvision
LAYERS, WIDTH, BATCH = 21, 1024, 512  # of the linear network, as its trace says
BARS = {"files read": 1.0, "kernels matched": 0.99}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    given = parser.parse_args()
    found = {"files read": read_all(given.data), "kernels matched": matched(given.data / "et")}
    closed_forms(given.data / "et")
    one_gpu(given.data / "et")
    for name, bar in BARS.items():
        print(f"{name}: {found[name]:.4f} (bar {bar})")
    if given.check:
        raise SystemExit(int(any(found[name] < bar for name, bar in BARS.items())))


def read_all(folder: Path) -> float:
    """Share of the files with execution traces or profiles that are read."""
    print(f"{'file':<34} {'holds':<10} {'schema':<20} {'nodes':>6} {'rows':>6}")
    n_read = n_all = 0
    for file in (*sorted((folder / "et").iterdir()), folder / "kineto" / "benchmark_simple_add_et.json.gz"):
        n_all += 1
        traces, profiles = of_file(file)
        n_read += bool(traces or profiles)
        job = read_traces(file) if traces else None
        schema = ", ".join(sorted({one.schema for one in traces}))
        nodes, rows = (
            sum(len(one.nodes) for one in traces),
            0 if job is None else sum(len(one.rows.rows) for one in job.ranks),
        )
        holds = f"{len(traces)} traces" if traces else f"{len(profiles)} profiles"
        print(f"{file.name:<34} {holds:<10} {schema:<20} {nodes:>6,} {rows:>6,}")
    return n_read / n_all


def of_file(file: Path) -> tuple[list[ExecutionTrace], list[Profile]]:
    """The traces and profiles in a file."""
    traces, profiles = [], []
    for one in documents(file):
        if one.is_trace:
            traces.append(read_execution_trace(one))
        elif one.is_profile:
            profiles.append(read_profile_ops(one.name, one.pieces))
    return traces, profiles


def matched(folder: Path) -> float:
    """Smallest share of kernel seconds that belong to nodes, over the profiles of recorded processes."""
    print("\nkernel seconds matched, of those started while the profile was recorded")
    shares: list[float] = []
    kernel_s = in_all_s = 0.0
    for trace, profile in pairs(folder):
        found = measure(trace, profile).kernels
        shares.append(found.matched)
        kernel_s, in_all_s = kernel_s + found.kernel_s, in_all_s + found.matched * (found.kernel_s - found.earlier_s)
        kernel_ms, earlier_ms, waits_ms = (
            1e3 * one for one in (found.kernel_s, found.earlier_s, found.communication_s)
        )
        of = f"{kernel_ms:.3f} ms ({earlier_ms:.3f} earlier), {waits_ms:.3f} in collectives"
        print(f"  pid {profile.pid}: {found.matched:8.2%} of {of}")
    print(f"  of all kernel seconds, those started earlier included: {in_all_s / kernel_s:.2%}")
    (resnet,), (profile,) = of_file(folder / "resnet_et.json.gz")[0], of_file(folder / "resnet_kineto.json.gz")[1]
    found = measure(resnet, profile).kernels.matched
    ours, theirs = (convolutions([one.name for one in each]) for each in (resnet.nodes, profile.ops))
    print(
        f"  resnet_kineto, of another process: {theirs:.0f} convolutions a step, resnet_et {ours:.0f}; {found:.0%} would match"
    )
    return min(shares)


def convolutions(names: list[str]) -> float:
    """Convolutions per step of the optimizer."""
    return names.count("aten::conv2d") / sum(one.startswith("Optimizer.step") for one in names)


def pairs(folder: Path) -> Iterator[tuple[ExecutionTrace, Profile]]:
    """Traces with the profile of the same process."""
    for own, beside in (LINEAR, DLRM):
        profiles = {one.pid: one for one in of_file(folder / beside)[1]}
        yield from ((one, profiles[one.pid]) for one in of_file(folder / own)[0])


def closed_forms(folder: Path) -> None:
    """FLOPs, parameters and bytes of gradients against what the networks have."""
    linear, resnet = (read_traces(folder / name).ranks[0].rows for name in (LINEAR[0], RESNET))
    print("\nagainst closed forms")
    flops = sum(row.flops for row in linear.rows if isinstance(row, CapturedOp))
    expected = 2.0 * BATCH * WIDTH**2 * (3 * LAYERS - 1)  # the first layer has no gradient of its input
    show("FLOPs of 21 linear layers", flops, expected)
    show("their parameters", linear.n_parameters, LAYERS * (WIDTH**2 + WIDTH))
    forward = sum(row.flops for row in resnet.rows if isinstance(row, CapturedOp) and row.phase == "F")
    show("forward FLOPs of ResNet-50", forward / resnet.samples, 2.0 * RESNET_MULTIPLY_ADDS)
    show("its parameters", resnet.n_parameters, 25_557_032)
    reduced = sum(
        row.n_bytes for row in resnet.rows if not isinstance(row, CapturedOp) and row.collective == "all_reduce"
    )
    show("bytes of its gradients, all-reduced", reduced, 4.0 * 25_557_032)


def show(what: str, found: float, expected: float) -> None:
    print(f"  {what:<38} {found:.6g} against {expected:.6g}: {found / expected - 1.0:+.3%}")


def one_gpu(folder: Path) -> None:
    """Kernel seconds of each rank of the DLRM, by the profile of another one: its operators by name and shapes alone."""
    job = read_traces(folder / DLRM[0], [folder / DLRM[1]])
    profiles = {one.pid: one for one in of_file(folder / DLRM[1])[1]}
    print("\nDLRM on 8 V100: kernels of the other seven ranks, each by those of one rank")
    covered, errors = [], []
    for teacher in job.ranks:
        profile = profiles[teacher.trace.pid]
        times = KernelTimes(profile.name, profile.device, tuple(timed_ops(profile)))
        for rank in job.ranks:
            if rank is not teacher:
                share, error = told(rank, times)
                covered.append(share)
                errors.append(abs(error))
    print(
        f"  share of measured kernel seconds that is found: {min(covered):.1%} to {max(covered):.1%}, mean {mean(covered):.1%}"
    )
    print(f"  seconds of what is found: mean error {mean(errors):.1%}, worst {max(errors):.1%}; 56 pairs of ranks")


def told(rank: TracedRank, times: KernelTimes) -> tuple[float, float]:
    """Share of a rank's measured seconds whose operators are found, and the error of their sum."""
    own = [row for row in rank.rows.rows if isinstance(row, CapturedOp)]
    bare = RankProgram("bare", 1, {}, (RankClass("all", 1, 0, tuple(replace(row, seconds=None) for row in own)),), 1, 1)
    found = [row.seconds for row in with_times(bare, times).program.classes[0].rows if isinstance(row, CapturedOp)]
    both = [(row.seconds or 0.0, one) for row, one in zip(own, found, strict=True) if one is not None]
    true_s = sum(one for one, _ in both)
    return true_s / sum(row.seconds or 0.0 for row in own), sum(one for _, one in both) / true_s - 1.0


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
