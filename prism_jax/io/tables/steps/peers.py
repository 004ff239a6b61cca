"""Jobs whose fabric was degraded, told by their peers: the same cluster and number of devices, another bandwidth."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import quantiles

from .record import StepRecord

_ALL_GATHER = re.compile(r"NCCL BW measured in the same job GB/s:.{0,200}?all-gather (\d{1,12}(?:\.\d{1,12})?)")
FEWEST = 8  # jobs on equally many devices, from which on a tenth of them says what the fabric can do
# Healthy jobs of one cluster and size lie within 15 % of each other; a ring all-gather at under 0.6 of the best tenth waits for
# something. Where most jobs are degraded (512 GPUs: 44 against 6 GB/s) the best tenth still tells.
MIN_SHARE_OF_PEERS = 0.6


def slower_than_peers(records: Sequence[StepRecord]) -> dict[str, str]:
    """Row id -> what is wrong, for rows whose own all-gather was far below that of jobs like them."""
    groups: defaultdict[tuple[str, str, int | None], dict[str, float]] = defaultdict(dict)
    for record in records:
        found = _ALL_GATHER.search(record.notes)
        if found:
            groups[record.source, record.gpu, record.n_gpus][record.id] = float(found[1])
    slow: dict[str, str] = {}
    for reached in groups.values():
        if len(reached) >= FEWEST:
            best = quantiles(reached.values(), n=10)[-1]
            slow |= {row: _text(rate, best) for row, rate in reached.items() if rate < MIN_SHARE_OF_PEERS * best}
    return slow


def _text(rate: float, best: float) -> str:
    return f"fabric degraded: the job's own all-gather reached {rate:.0f} GB/s where its peers reach {best:.0f}"
