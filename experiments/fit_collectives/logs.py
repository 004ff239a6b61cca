"""Logs as nccl-tests writes them, of collectives whose law is known, and of measured tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

GPUS_PER_NODE = 8
OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast")
HEAD = """\
# nccl-tests version 2.17.1 nccl-headers=22704 nccl-library=22704
# Collective test starting: {op}_perf
# nThread 1 nGpus 1 minBytes {smallest} maxBytes {largest} step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
{ranks}#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
RANK = "#  Rank {0:2d} Group  0 Pid  {1} on  node-{2} device  {3} [0x{0:02x}] {4}\n"
KINDS = ("plain", "protocols", "late switch")
# Latency and bandwidth of the protocols LL, LL128 and Simple, as multiples of the first's latency and the last's bandwidth.
PROTOCOLS = ((1.0, 0.25), (1.6, 0.9), (2.5, 1.0))


@dataclass(frozen=True)
class Truth:
    """A collective whose law is known.

    Attributes:
        kind: how time depends on size, one of `KINDS`: a straight line; the fastest of three protocols, with knees where they
            change; and two straight lines of which the library changes to the second too late, with a jump.
        latency_s: of a message of no bytes.
        bus_bytes_per_s: of a message without end.
        noise: standard deviation of log time from row to row.
        switch: of the late switch: latency of the second line over the first, and how late it is, a factor of size.
    """

    kind: str
    op: str
    n_gpus: int
    latency_s: float
    bus_bytes_per_s: float
    noise: float
    sizes: np.ndarray
    switch: tuple[float, float] = (2.0, 2.0)

    @property
    def n_nodes(self) -> int:
        """Nodes of eight GPUs."""
        return -(-self.n_gpus // GPUS_PER_NODE)

    def seconds(self, n_bytes: np.ndarray) -> np.ndarray:
        """Time of messages, without noise."""
        wire = bus_factor(self.op, self.n_gpus) * n_bytes / self.bus_bytes_per_s
        if self.kind == "plain":
            return self.latency_s + wire
        if self.kind == "protocols":
            return np.min([self.latency_s * more + wire / share for more, share in PROTOCOLS], axis=0)
        (latency, late), share = self.switch, 0.7
        first, second = self.latency_s + wire / share, latency * self.latency_s + wire
        meet = (latency - 1.0) * self.latency_s / (1.0 / share - 1.0)  # seconds on the wire
        return np.where(wire < late * meet, first, second)


def bus_factor(op: str, n_gpus: int) -> float:
    """Bytes over a link per byte of message, as nccl-tests has it."""
    if op in ("broadcast", "sendrecv"):
        return 1.0
    return (2.0 if op == "all_reduce" else 1.0) * (n_gpus - 1.0) / n_gpus


def truth_of(index: int, rng: np.random.Generator) -> Truth:
    """5 to 60 us, 10 to 400 GB/s, 0.5 to 5% of noise, 2 to 64 GPUs, 20 to 30 sizes up to 1 to 16 GiB."""

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    n_size, largest = int(rng.integers(20, 31)), int(rng.integers(30, 35))
    return Truth(
        kind=KINDS[index % len(KINDS)],
        op=OPS[index // len(KINDS) % len(OPS)],
        n_gpus=2 ** int(rng.integers(1, 7)),
        latency_s=between(5e-6, 60e-6),
        bus_bytes_per_s=between(10e9, 400e9),
        noise=between(0.005, 0.05),
        sizes=2.0 ** np.arange(max(3, largest - n_size + 1), largest + 1),
        switch=(between(1.5, 3.0), between(1.2, 3.0)),
    )


def simulated(truth: Truth, rng: np.random.Generator) -> str:
    """The log of one test."""
    noise = truth.noise * rng.standard_normal((2, len(truth.sizes)))
    out_s, in_s = truth.seconds(truth.sizes) * np.exp(noise)
    return log(truth.op, truth.n_gpus, truth.sizes, out_s, in_s, "NVIDIA H100 80GB")


def log(op: str, n_gpus: int, sizes: np.ndarray, out_s: np.ndarray, in_s: np.ndarray, gpu: str) -> str:
    """A log of nccl-tests with these times out of place and in place."""
    ranks = "".join(RANK.format(rank, 4000 + rank, *divmod(rank, GPUS_PER_NODE), gpu) for rank in range(n_gpus))
    rows = (_row(op, n_gpus, *row) for row in zip(sizes, out_s, in_s, strict=True))
    return HEAD.format(op=op, smallest=int(sizes[0]), largest=int(sizes[-1]), ranks=ranks) + "".join(rows)


def logs_of_table(table: pd.DataFrame) -> dict[int, str]:
    """GPUs -> the log that a table of all-reduces, one row per size, was made of."""
    found: dict[int, str] = {}
    for n_gpus in sorted(set(table["num_gpus"]) - {1}):
        rows = {name: np.asarray(column) for name, column in table[table["num_gpus"] == n_gpus].items()}
        out_s, in_s = (1e-6 * rows[f"time_us_{side}"] for side in ("out_of_place", "in_place"))
        found[n_gpus] = log("all_reduce", n_gpus, rows["msg_bytes"].astype(float), out_s, in_s, str(rows["gpu"][0]))
    return found


def _row(op: str, n_gpus: int, size: float, out_s: float, in_s: float) -> str:
    factor = bus_factor(op, n_gpus)
    sides = (
        f"{_time(1e6 * seconds)} {1e-9 * size / seconds:7.2f} {1e-9 * factor * size / seconds:7.2f}       0"
        for seconds in (out_s, in_s)
    )
    return f"{int(size):12d} {int(size) // 4:13d}     float     sum      -1  {'  '.join(sides)}\n"


_DIGITS: tuple[tuple[float, Callable[[float], str]], ...] = (
    (1e3, lambda us: f"{us:7.2f}"),
    (1e5, lambda us: f"{us:7.1f}"),
    (np.inf, lambda us: f"{us:7.0f}"),
)


def _time(us: float) -> str:
    """Microseconds with as many digits as nccl-tests prints."""
    return next(text(us) for below, text in _DIGITS if us < below)
