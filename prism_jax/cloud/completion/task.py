"""Task: what is to be done on some nodes: intervals of work, each followed by a checkpoint, and what a restart takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ...errors import Problem, SpecError
from ...horizon.renewal import best_interval, expected_time

MOST_INTERVALS = 10_000_000
SELDOM_S = 6 * 3600.0  # between checkpoints where nothing is said of failures: nobody leaves them out


@dataclass(frozen=True)
class Task:
    """A job on a number of nodes.

    Attributes:
        work_s: of all steps on all nodes.
        n_interval: that the work is cut into, all of one length.
        blocking_s: that the job waits for the checkpoint behind every interval.
        restart_s: from nodes at hand to the first new step: start of the machines, load of the checkpoint.
        failures_s: interruptions per second by hardware and software, whatever the nodes are paid by.
        first_s: the first start, where it is not a restart; None: it is. 0: the job runs already.

    Raises:
        SpecError: a figure is out of range.
    """

    work_s: float
    n_interval: int
    blocking_s: float = 0.0
    restart_s: float = 0.0
    failures_s: float = 0.0
    first_s: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.work_s < 1e12:
            raise SpecError.of(Problem("work_s", f"{self.work_s:g}, but it must be above 0 and below 1e12"))
        if not 1 <= self.n_interval <= MOST_INTERVALS:
            raise SpecError.of(Problem("n_interval", f"{self.n_interval:,}, but it must be 1 to {MOST_INTERVALS:,}"))
        for field in ("blocking_s", "restart_s", "failures_s"):
            if not 0.0 <= getattr(self, field) < 1e10:
                text = f"{getattr(self, field):g}, but it must be at least 0 and below 1e10"
                raise SpecError.of(Problem(field, text))

    @classmethod
    def cut(
        cls,
        work_s: float,
        interval_s: float | None,
        blocking_s: float,
        restart_s: float,
        failures_s: float,
        losses_s: float = 0.0,
    ) -> Task:
        """With intervals of about that many seconds; None: the best for `failures_s` and `losses_s` together."""
        if interval_s is None:
            interval_s = min(float(best_interval(blocking_s, failures_s + losses_s)), SELDOM_S)
        wanted = max(interval_s, blocking_s, 1e-3 * work_s / MOST_INTERVALS)
        return cls(work_s, int(min(max(ceil(work_s / wanted), 1), MOST_INTERVALS)), blocking_s, restart_s, failures_s)

    @property
    def interval_s(self) -> float:
        """Seconds of work between checkpoints."""
        return self.work_s / self.n_interval

    @property
    def cycle_s(self) -> float:
        """Seconds of an interval with its checkpoint."""
        return self.interval_s + self.blocking_s

    def expected_s(self, losses_s: float = 0.0, down_s: float = 0.0) -> float:
        """Expected wall time by the exact renewal form, the first start included.

        Args:
            losses_s: losses of nodes per second, at a constant rate.
            down_s: mean seconds until nodes are to be had again; hardware is replaced at once.
        """
        rate = self.failures_s + losses_s
        waited_s = down_s * losses_s / rate if rate > 0.0 else 0.0
        rest_s = expected_time(self.work_s, self.interval_s, self.blocking_s, self.restart_s, rate, waited_s)
        return float(rest_s) + self._first_start_s(rate, waited_s)

    def _first_start_s(self, rate: float, waited_s: float) -> float:
        """Restarts until one is not interrupted."""
        first_s = self.restart_s if self.first_s is None else self.first_s
        if rate == 0.0 or first_s == 0.0:
            return first_s
        return float(expected_time(first_s, first_s, 0.0, 0.0, rate, waited_s))
