"""VisitedPlans: what has been found out about plans so far, each worked out once."""

from __future__ import annotations

import numpy as np

from ..._typing import Floats
from ..plans.block import feasibility, table_cost
from ..plans.cost_cache import PlanCosts
from ..plans.plan_cache import Rows
from ..plans.rules import FEASIBLE, MEMORY
from .knobs import Codes, Knobs
from .time import estimate_s


class VisitedPlans:
    """What has been found out about plans at positions of knobs, each worked out once."""

    def __init__(self, knobs: Knobs, costs: PlanCosts) -> None:
        self._knobs, self._costs = knobs, costs
        self._found: dict[bytes, tuple[float, float, Rows]] = {}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def positions(self) -> Rows:
        """[plan, knob] of all plans, in the order in which they were met."""
        found = [positions for _, _, positions in self._found.values()]
        return np.array(found, dtype=np.intp).reshape(-1, len(self._knobs.sizes))

    def look_up(self, positions: Rows) -> tuple[Floats, Floats]:
        """Time and fullness [plan] of plans at `positions` [plan, knob].

        Returns:
            Seconds without randomness, NaN where a plan cannot run; logarithm of the memory it needs over the memory there is,
            infinite where it breaks a rule.
        """
        codes = self._knobs.codes(positions)
        keys = codes.texts()
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            if key not in self._found:
                first.setdefault(key, row)
        if first:
            rows = np.array([*first.values()])
            found = self._learn(codes.take(rows))
            self._found |= dict(zip(first, zip(*found, positions[rows], strict=True), strict=True))
        time, fullness = zip(*(self._found[key][:2] for key in keys), strict=True)
        return np.array(time), np.array(fullness)

    def _learn(self, codes: Codes) -> tuple[Floats, Floats]:
        time, fullness = np.full(len(codes.layout), np.nan), np.full(len(codes.layout), np.inf)
        for table, rows in self._knobs.tables(codes):
            reason, memory = feasibility(table, self._costs)
            sound = (reason == FEASIBLE) | (reason == MEMORY)
            fullness[rows[sound]] = np.log(memory[sound] / self._costs.memory_limit_bytes)
            fits = np.flatnonzero(reason == FEASIBLE)
            if fits.size:
                time[rows[fits]] = estimate_s(table_cost(table.take(fits), self._costs), self._costs)
        return time, fullness

    def best(self, count: int, within: float = np.inf) -> Rows:
        """Positions [plan, knob] of up to `count` plans, fastest first; where fewer fit, those follow that miss the least memory.

        Args:
            within: leaves out what takes longer than this times the fastest.

        Notes:
            Of plans of one layout that take the same time the one with the least memory stands for all (ZeRO-1 beside ZeRO-2).
        """
        sound = [(*self._rank(key), key) for key, (_, fullness, _) in self._found.items() if np.isfinite(fullness)]
        chosen: dict[tuple[float, bytes], bytes] = {}
        sound.sort()
        for rank, _, key in sound:
            if len(chosen) == count or rank > sound[0][0] + np.log(within):
                break
            chosen.setdefault((rank, key[:8]), key)
        found = [self._found[key][2] for key in chosen.values()]
        return np.array(found, dtype=np.intp).reshape(-1, len(self._knobs.sizes))

    def _rank(self, key: bytes) -> tuple[float, float]:
        """What plans are sorted by: log time, after it what those miss that do not fit; then memory."""
        time, fullness, _ = self._found[key]
        return (round(float(np.log(time)), 9) if np.isfinite(time) else _LAST + fullness), fullness


_LAST = 1e3
