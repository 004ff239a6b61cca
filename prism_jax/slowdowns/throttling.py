"""GPUs that throttle, and the reasons that drivers log next to clocks.

nvidia-smi logs a mask (`clocks_event_reasons.active`, formerly `clocks_throttle_reasons.active`) or one column per reason, DCGM
the same mask (field 112). A reason counts in rows in which the GPU worked; one that holds for most GPUs is a property of the
fleet, such as the power cap under full load, and is said once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..tables.csv_rows import number_of
from .measured_speeds import words_of


class Reason(NamedTuple):
    """A bit of the mask, the words of its column, and its name."""

    bit: int
    words: frozenset[str]
    text: str


IDLE = 0x1
REASONS = (
    Reason(0x40, frozenset(("hw", "thermal")), "HW thermal slowdown"),
    Reason(0x80, frozenset(("hw", "brake")), "HW power brake"),
    Reason(0x8, frozenset(("hw", "slowdown")), "HW slowdown"),
    Reason(0x20, frozenset(("sw", "thermal")), "SW thermal slowdown"),
    Reason(0x4, frozenset(("sw", "power", "cap")), "SW power cap"),
    Reason(0x2, frozenset(("applications", "setting")), "clocks set by hand"),
    Reason(IDLE, frozenset(("idle",)), ""),
)
"""Reasons of NVML and DCGM alike (DCGM API, field constants: DCGM_CLOCKS_EVENT_REASON_*); the special ones before the general."""

ACTIVE, INACTIVE = frozenset(("active", "yes", "true")), frozenset(("not active", "no", "false", ""))
LEAST_SHARE = 0.05  # of the rows in which a GPU worked, from which on it is named
MOST_GPUS = 8  # named per reason
HW = 0x40 | 0x80  # what HW slowdown is about, where it is known


def is_reason(name: str) -> bool:
    """Whether a column holds reasons, all or one of them."""
    words = set(words_of(name))
    about = "reasons" in words and bool(words & {"throttle", "event", "clocks"})
    return about and words.isdisjoint(("supported", "counters"))


def active(columns: Sequence[str], row: Mapping[str, str]) -> int | None:
    """The mask of the reasons in a row; None where it says nothing."""
    found: int | None = None
    for name in columns:
        words = set(words_of(name))
        bit = next((one.bit for one in REASONS if one.words <= words), 0)
        value = _value(row[name])
        if value is not None:
            found = (found or 0) | ((bit if value else 0) if bit else value)
    return found


def _value(text: str) -> int | None:
    """A mask, or whether a reason is active; None where the text says neither."""
    low = text.strip().lower()
    if low in ACTIVE or low in INACTIVE:
        return int(low in ACTIVE) if low else None
    try:
        return int(low, 16) if low.startswith("0x") and len(low) <= 18 else int(number_of(low))
    except (ValueError, OverflowError):
        return None


@dataclass
class Throttling:
    """Counts the reasons of every GPU.

    Attributes:
        columns: with reasons.
        n_rows: GPU -> rows in which it worked.
        n_active: bit -> GPU -> how many of them name the reason.
    """

    columns: Sequence[str]
    n_rows: dict[str, int] = field(default_factory=dict)
    n_active: dict[int, dict[str, int]] = field(default_factory=dict)

    def add(self, gpu: str, row: Mapping[str, str]) -> None:
        """Counts a row in which the GPU worked."""
        mask = active(self.columns, row)
        if mask is None:
            return
        self.n_rows[gpu] = self.n_rows.get(gpu, 0) + 1
        for one in REASONS:
            if mask & one.bit and not (one.bit == 0x8 and mask & HW):
                of_gpu = self.n_active.setdefault(one.bit, {})
                of_gpu[gpu] = of_gpu.get(gpu, 0) + 1

    def notes(self, source: str) -> tuple[str, ...]:
        """A line per reason with the GPUs that it holds, the most throttled first; nothing where none is."""
        found = []
        for one in REASONS:
            shares = {gpu: n / self.n_rows[gpu] for gpu, n in self.n_active.get(one.bit, {}).items()}
            held = sorted((gpu for gpu, share in shares.items() if share >= LEAST_SHARE), key=lambda gpu: -shares[gpu])
            if not held or not one.text:
                continue
            if len(held) > max(2, len(self.n_rows) // 2):
                found.append(f"{source}: {one.text} on {len(held):,} of {len(self.n_rows):,} GPUs")
                continue
            named = ", ".join(f"{gpu} ({shares[gpu]:.0%} of its samples at work)" for gpu in held[:MOST_GPUS])
            more = f", and {len(held) - MOST_GPUS:,} more" if len(held) > MOST_GPUS else ""
            found.append(f"{source}: throttled by {one.text}: {named}{more}")
        return tuple(found)
