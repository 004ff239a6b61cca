"""What follows an interruption: restart, load, warm-up, spare nodes; and stops that are planned."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Problem, SpecError

POLICIES = ("restart", "hot_spare", "shrink")


@dataclass(frozen=True)
class PlannedStop:
    """Seconds of work between stops that are planned (evaluation, maintenance after a checkpoint), and the seconds of one."""

    every_s: float
    seconds: float

    def __post_init__(self) -> None:
        if not self.every_s > 0.0 or not self.seconds >= 0.0:
            text = f"{self.seconds:g} s every {self.every_s:g} s, but they must be at least 0 and above 0"
            raise SpecError.of(Problem("planned", text), "recovery")


@dataclass(frozen=True)
class Recovery:
    """What is done after an interruption.

    Attributes:
        restart_s: from the interruption, once noticed, until a checkpoint is loaded: drain, schedule, start processes.
        swap_s: the same where a hot spare takes over (policy "hot_spare"); None: as long.
        warmup_steps, warmup_slowdown: first steps after a restart, and how much longer they take (1.05: 5 %).
        spares: idle nodes beside the job; None: the fewest that suffice 99 % of the time.
        policy: "restart" waits for nodes where spares do not suffice, "hot_spare" too, "shrink" goes on with fewer.
        planned: stops that are planned.

    Raises:
        SpecError: a figure out of range, or an unknown policy.
    """

    restart_s: float
    swap_s: float | None = None
    warmup_steps: int = 0
    warmup_slowdown: float = 1.0
    spares: int | None = None
    policy: str = "restart"
    planned: tuple[PlannedStop, ...] = ()

    def __post_init__(self) -> None:
        wrong = [
            Problem(name, f"{value:g}, but it must be finite and at least {low:g}")
            for name, value, low in (
                ("restart_s", self.restart_s, 0.0),
                ("swap_s", self.swap_s or 0.0, 0.0),
                ("warmup_steps", self.warmup_steps, 0.0),
                ("warmup_slowdown", self.warmup_slowdown, 1.0),
                ("spares", self.spares or 0, 0.0),
            )
            if not low <= value < float("inf")
        ]
        if self.policy not in POLICIES:
            wrong.append(Problem("policy", f"{self.policy!r}, but it must be one of {', '.join(POLICIES)}"))
        if wrong:
            raise SpecError.of(wrong[0], "recovery")

    @property
    def planned_share(self) -> float:
        """Seconds of planned stops per second of work."""
        return sum(stop.seconds / stop.every_s for stop in self.planned)

    def warmup_s(self, step_s: float) -> float:
        """Seconds that the first steps take longer."""
        return self.warmup_steps * (self.warmup_slowdown - 1.0) * step_s

    def quickest_s(self) -> float:
        """Restart where no node has to be waited for."""
        return self.restart_s if self.swap_s is None or self.policy != "hot_spare" else self.swap_s
