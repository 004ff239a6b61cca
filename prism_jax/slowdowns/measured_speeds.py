"""Turns measurements of GPUs (TFLOP/s, relative speeds, seconds, clocks) into slowdowns, and recognises columns by their names.

A slowdown is a GPU's time over that of the middle GPU: the median of the rates over its own rate, its time over the median of the
times. Of a clock it is that of kernels which compute; copies do not follow it.

Whether a column called slowdown holds slowdowns or speeds, its tails say: chips have a ceiling and no floor, so that the few that
lie far from the others are slow ones (measured by PAL, hal-uw/blox-pal: 392 V100 take -4.8 to +20.3% of the median in SGEMM, 336
of them -5.5 to +12.1% in ResNet-50). Where many lie low, nothing tells, and it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.kernels import KERNEL_CLASSES

ALL = "all"  # of factors for every class
Kind = Literal["rate", "time", "clock"]


def _set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text))


RATES = _set(
    "flops tflops gflops pflops mflops tflop gflop pflop speed speeds speedup throughput score perf performance bandwidth bw "
    "membw gbps tbps mbps gbs ips qps"
)
PER_SECOND = frozenset(("s", "sec", "second", "seconds"))
TIMES = _set("time duration latency elapsed runtime seconds secs sec s ms msec us usec ns nsec millis micros")
CLOCKS = _set("clock clocks freq frequency sclk smclk")
NO_QUANTITY = _set(
    "limit max min peak target expected rated theoretical std sd cv count temp temperature power util utilization used total "
    "throttle reasons reason event events timestamp start end date uptime ts unix video error errors nccl busbw algbw network "
    "nic ib link version loss"
)
OF_CLASS = {
    "gemm": _set("gemm matmul sgemm hgemm dgemm mm linear cublas"),
    "attention": _set("attention attn flash fmha sdpa"),
    "memory": _set("memory mem hbm memcpy copy stream triad dram membw"),
}
OF_CLOCK = ("gemm", "attention")
BUSY = 50.0  # percent of the time, from which on a clock is that of work
HALF_POWER = 0.5  # of the largest that was logged, from which on a clock is that of work
LOW, FEW, OTHER_TAIL = 0.06, 0.25, 0.25  # what is far below; the share that may be; how much shorter the other tail is
PLAUSIBLE = (0.3, 3.0)  # median of slowdowns


def words_of(name: str) -> list[str]:
    """Words of a column's name in lower case: "GEMM TFLOP/s" is gemm, tflop, s."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return re.findall(r"[a-z]+|[0-9]+", spaced.lower())


class SpeedColumn(NamedTuple):
    """A measured column: its name, its quantity, and the kernel classes that it measures."""

    column: str
    kind: Kind
    classes: tuple[str, ...]


def kind_of(name: str) -> Kind | None:
    """Returns the kind of measurement in a column, by the column's name; None where that is no speed of a GPU."""
    words = words_of(name)
    found = set(words)
    if not words or found & NO_QUANTITY or "eval" in found:
        return None
    if found & CLOCKS:
        return None if found & OF_CLASS["memory"] else "clock"
    per = any(a == "per" and b in PER_SECOND for a, b in pairwise(words))
    sized = any(a in ("gb", "gib", "tb", "mb", "mib") and b in PER_SECOND for a, b in pairwise(words))
    if found & RATES or per or sized:
        return "rate"
    return "time" if found & TIMES else None


def quantities(names: Sequence[str], place: str) -> tuple[SpeedColumn, ...]:
    """The measured columns of a table: rates before times before clocks; one for each kernel class.

    Raises:
        DataError: several columns of a kind tell of the same class.
    """
    by_kind: dict[Kind, list[str]] = {"rate": [], "time": [], "clock": []}
    for name in names:
        if (kind := kind_of(name)) is not None:
            by_kind[kind].append(name)
    for kind, found in by_kind.items():
        if not found:
            continue
        if kind == "clock":
            found = sorted(found, key=lambda name: "sm" not in words_of(name))[:1]
        told = [SpeedColumn(name, kind, OF_CLOCK if kind == "clock" else (class_of(name),)) for name in found]
        classes = [one.classes for one in told]
        if len(set(classes)) < len(classes) or (len(classes) > 1 and (ALL,) in classes):
            raise DataError(f"{place}: several columns could be the speed: {', '.join(found[:6])}. Keep one.")
        return tuple(told)
    return ()


def class_of(name: str) -> str:
    """The kernel class that a name tells of; "all" where it tells none."""
    words = set(words_of(name))
    return next((kind for kind, of in OF_CLASS.items() if words & of and kind in KERNEL_CLASSES.names), ALL)


Key = TypeVar("Key")


def at_work(utilization: Mapping[Key, float], power: Mapping[Key, float]) -> dict[Key, bool]:
    """Whether GPUs work, by utilization where any is `BUSY`, else by power over half of the largest; empty where neither tells.

    Args:
        utilization: percent by sample.
        power: watts by sample.
    """
    most = max((value for value in power.values() if value == value), default=0.0)
    for values, least in ((utilization, BUSY), (power, HALF_POWER * most)):
        works = {key: value >= least for key, value in values.items()}
        if any(works.values()):
            return works
    return {}


def slowdowns_of(values: Floats, kind: Kind) -> Floats:
    """Slowdowns [gpu] from measurements of each [gpu], over that of the middle one."""
    middle = float(np.median(values))
    return values / middle if kind == "time" else middle / values


@dataclass(frozen=True)
class Recognised:
    """Slowdowns [gpu], and notes on how they were read."""

    factor: Floats
    note: str = ""


def recognised(values: Floats, column: str, path: str) -> Recognised:
    """The slowdowns in a column that is called so: itself, or speeds where its tails say that it holds those.

    Raises:
        DataError: its tails do not say.
    """
    middle = float(np.median(values))
    relative = PLAUSIBLE[0] <= middle <= PLAUSIBLE[1]
    reference = 1.0 if relative and len(values) < 4 else middle
    deviation = np.log(values / reference)
    below, above = max(-float(deviation.min()), 0.0), max(float(deviation.max()), 0.0)
    longest = float(np.exp(below) - 1.0)
    many = float((deviation < -LOW).mean()) > FEW
    worst, best = f"{values.min():g}", f"{values.max():g}"
    if below <= LOW and (relative or above > LOW):
        if relative:
            return Recognised(values)
        return Recognised(
            values / middle, f"{path}: {column} holds no factors (median {middle:g}): read as times, {best} is slow"
        )
    if relative and above > OTHER_TAIL * below:
        return Recognised(values)
    if below > LOW and above <= OTHER_TAIL * below and not many:
        return Recognised(
            middle / values,
            f"{path}: {column} was read as speeds: {worst} is taken for {longest:.0%} slower than the middle, as no other lies "
            "so far above; chips are slow, never fast, by as much. Call the column speed, or write slowdowns (1.05 = 5% slower)",
        )
    what = f"from {worst} to {best}, median {middle:g}"
    raise DataError(
        f"{path} {column}: {what}: slowdowns (1.05 = 5% slower) or speeds (.95 = 5% slower)? Call the column speed if "
        "they are speeds; if they are slowdowns, divide them by that of the fastest GPU."
    )


def combined(by_series: Mapping[str, Mapping[int, Floats]], kind: Kind) -> dict[int, float]:
    """Slowdown of every GPU from repeats of several kernels: of each its median, then the median over kernels.

    Args:
        by_series: kernel -> GPU -> values.
    """
    ratios: dict[int, list[float]] = {}
    for of_gpu in by_series.values():
        gpus = sorted(of_gpu)
        factor = slowdowns_of(np.array([float(np.median(of_gpu[gpu])) for gpu in gpus]), kind)
        for gpu, one in zip(gpus, factor.tolist(), strict=True):
            ratios.setdefault(gpu, []).append(one)
    return {gpu: float(np.median(values)) for gpu, values in ratios.items()}
