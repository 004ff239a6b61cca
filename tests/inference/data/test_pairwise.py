"""Logs of pairs of nodes: each has its own bandwidth, and a bad pair is named."""

from pathlib import Path

import numpy as np
import pytest

from inference.collectives.data import COLUMNS
from inference.data.read import read_measurements

HEAD = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 2(factor)
# Using devices
{ranks}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""


def log(pair: int, slower: float, rng: np.random.Generator) -> str:
    """An all-reduce of 16 GPUs at 370 GB/s of bus bandwidth, `slower` times as slow."""
    ranks = "\n".join(
        f"#  Rank {r:2d} Group  0 Pid {1000 + r} on node{2 * pair + r // 8:03d} device {r % 8:2d} [0x1b] NVIDIA H100 80GB HBM3"
        for r in range(16)
    )
    rows = []
    for size in (2**k for k in range(20, 31)):
        us = slower * (55.0 + 2.0 * 15.0 / 16.0 * size / 370e9 * 1e6) * np.exp(0.005 * rng.standard_normal())
        algbw = size / us / 1e3
        part = f"{us:9.1f} {algbw:7.2f} {algbw * 1.875:7.2f}      0"
        rows.append(f"{size:12d} {size // 4:12d}     float     sum      -1 {part} {part}")
    return HEAD.format(ranks=ranks) + "\n".join(rows) + "\n# Avg bus bandwidth    : 200\n"


@pytest.mark.parametrize("bad", [None, 5])
def test_every_log_has_its_bandwidth_and_a_bad_pair_is_named(tmp_path: Path, bad: int | None) -> None:
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"pair_{pair}_all_reduce_perf.log" for pair in range(8)]
    for pair, path in enumerate(paths):
        path.write_text(log(pair, 2.0 if pair == bad else 1.0, rng))
    notes = read_measurements(paths, COLUMNS).hygiene.notes
    (each,) = [note for note in notes if "bus GB/s of each log" in note]
    assert "all_reduce of 16 GPUs on 2 nodes" in each
    assert float(each.split("pair_0_all_reduce_perf.log ")[1].split(",")[0]) == pytest.approx(370.0, rel=0.03)
    apart = [note for note in notes if "lies apart" in note]
    assert [note.split()[0] for note in apart] == ([] if bad is None else ["pair_5_all_reduce_perf.log"])
    assert all("50% of their bandwidth" in note for note in apart)


def test_two_logs_say_nothing_of_each_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{pair}_all_reduce_perf.log" for pair in range(2)]
    for pair, path in enumerate(paths):
        path.write_text(log(pair, 1.0 + pair, rng))
    assert not any("bus GB/s" in note for note in read_measurements(paths, COLUMNS).hygiene.notes)
