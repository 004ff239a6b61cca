"""Reads Megatron-LM's own detectors from its log: `--log-straggler`, and the GPU sniff test.

`--log-straggler` prints extremes over ranks per logging interval, `MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8`, and with
`--straggler-minmax-count N` the N lowest and highest: `^^^^ Bottom 4 Ranks with lowest  Etpt(TF): 296.02/0, 296.17/2,`. The
median rank lies between the highest of the bottom and the lowest of the top. The sniff test prints the median of every
micro-benchmark and the ranks that are off by more than a tenth: `OUTLIER rank 5 (gpu1): 402.10 (-18.2%)`; of it the products
(GEMM) say how fast a GPU is, and the collectives how fast its links, which is noted.

Source: NVIDIA/Megatron-LM, `StragglerDetector` of megatron.core.utils, and megatron.training.gpu_sniff_test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .readings import DetectorFile, DetectorReadings, SlowdownDetector, UsualValue, place_of

_RANKED = r"(\d{1,12}(?:\.\d{1,9})?)[A-Za-z%]{0,3}/(\d{1,9})"
_EXTREMES = re.compile(rf"MnEtpt/Rnk: {_RANKED}.*?MxEtpt/Rnk: {_RANKED}")
_RTT = re.compile(rf"MnRtt/Rnk: {_RANKED}.*?MxRtt/Rnk: {_RANKED}")
_LIST = re.compile(r"\^\^\^\^ (Bottom|Top)\s{1,9}\d{1,6} Ranks with (?:lowest|highest)\s{1,9}Etpt\(TF\):(.*)")
_PAIR = re.compile(_RANKED)
_MEDIAN = re.compile(r"(\S.{0,200}?): median=([0-9.]{1,20})")
_OUTLIER = re.compile(r"OUTLIER rank (\d{1,9})(?: \(([^()\s]{1,253})\))?: ([0-9.]{1,20}) \(")
ETPT = "forward throughput"
NEAR = 0.02  # within which the median is known well enough to take the middle of its bounds


def read_straggler_log(file: DetectorFile) -> DetectorReadings:
    """Throughput of the listed ranks, one report per logging interval.

    Raises:
        DataError: cannot be read.
    """
    found = DetectorReadings(file.name)
    report: dict[str, list[tuple[float, int]]] = {}
    for number, line in file.lines():
        where = f"{file.name}:{number}"
        if extremes := _EXTREMES.search(line):
            _close(found, report, where)
            found.n_report += 1
            report = {
                "Bottom": [(float(extremes[1]), int(extremes[2]))],
                "Top": [(float(extremes[3]), int(extremes[4]))],
            }
        elif rtt := _RTT.search(line):  # throughput was not logged
            _close(found, report, where)
            found.n_report += 1
            rates = [(1e3 / max(float(rtt[i]), 1e-9), int(rtt[i + 1])) for i in (3, 1)]
            report = {"Bottom": rates[:1], "Top": rates[1:]}
        elif report and (ranked := _LIST.search(line)):
            report[ranked[1]] = [(float(value), int(rank)) for value, rank in _PAIR.findall(ranked[2])] or report[
                ranked[1]
            ]
    _close(found, report, file.name)
    found.notes.append("only the slowest and the fastest ranks are listed; the others count as usual")
    return found


def _close(found: DetectorReadings, report: dict[str, list[tuple[float, int]]], where: str) -> None:
    """Adds the ranks of a report, and the bounds of its median."""
    if not report:
        return
    low, high = max(report["Bottom"])[0], min(report["Top"])[0]
    low, high = min(low, high), max(low, high)
    middle = (low * high) ** 0.5 if high <= (1.0 + NEAR) * low else high
    if low > 0.0:
        found.references[found.n_report - 1, ETPT] = UsualValue(middle, low, high)
    for value, rank in dict.fromkeys((*report["Bottom"], *report["Top"])):
        found.add(where, place_of(where, rank=rank), ETPT, "rate", value)


def read_sniff_test(file: DetectorFile) -> DetectorReadings:
    """Products of the ranks that a sniff test lists, against its median, one report per test.

    Raises:
        DataError: cannot be read.
    """
    found, series, seen, on_links = DetectorReadings(file.name), "", set[str](), dict[str, list[str]]()
    reference = UsualValue(1.0, 1.0, 1.0)
    for number, line in file.lines():
        where = f"{file.name}:{number}"
        if median := _MEDIAN.search(line):
            series = re.sub(r"^.*?(?=GEMM|All-|Reduce-|Send/)", "", median[1])
            if "GPU sniff test" in line or series in seen or not found.n_report:
                found.n_report += 1
                seen = set()
            seen.add(series)
            value = float(median[2])
            reference = UsualValue(value, value, value)
        elif series and (outlier := _OUTLIER.search(line)):
            value = float(outlier[3])
            if series.startswith("GEMM"):
                found.references[found.n_report - 1, series] = reference
                found.add(where, place_of(where, outlier[2] or "", rank=outlier[1]), series, "rate", value)
            elif value < reference.value:
                on_links.setdefault(outlier[1], []).append(f"{value / reference.value - 1.0:+.0%}")
    found.notes.append("a sniff test lists ranks that are off by more than 10%; the others count as usual")
    found.notes += _slow_links(on_links)
    return found


def _slow_links(on_links: Mapping[str, Sequence[str]]) -> list[str]:
    """Note on ranks whose collectives are slow, which is not about their kernels."""
    if not on_links:
        return []
    named = ", ".join(f"rank {rank} ({shares[0]})" for rank, shares in list(on_links.items())[:8])
    more = f", and {len(on_links) - 8:,} more" if len(on_links) > 8 else ""
    return [f"collectives are slow at {named}{more}; links have columns of their own (link, nic, rail)"]


MEGATRON_STRAGGLER = SlowdownDetector(
    "megatron-straggler",
    "logs of Megatron with --log-straggler (MnRtt/Rnk: ...)",
    read_straggler_log,
    sign=re.compile(r"Mn(?:Rtt|Etpt)/Rnk: \d"),
)
MEGATRON_SNIFF_TEST = SlowdownDetector(
    "megatron-sniff-test",
    "logs of Megatron with --gpu-sniff-test-interval (GPU sniff test)",
    read_sniff_test,
    sign=re.compile(r"GPU sniff test|OUTLIER rank \d|GEMM throughput \(.{1,80}: median="),
)
