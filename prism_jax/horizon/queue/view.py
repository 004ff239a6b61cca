"""View: what a policy sees of the cluster at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class View:
    """Jobs as the scheduler knows them; plain lists, which are read one number at a time.

    Attributes:
        submit_s, gpus, deadline_s: [job] as submitted.
        estimate_s: [job] estimated duration.
        now_s: the clock of the trace.
        ran_s: [job] seconds that it has run before its present run, restarts left out.
    """

    submit_s: list[float]
    gpus: list[int]
    deadline_s: list[float]
    estimate_s: list[float]
    now_s: float = 0.0
    ran_s: list[float] = field(default_factory=list)

    def remaining_s(self, job: int) -> float:
        """Estimated seconds left; at least zero."""
        left = self.estimate_s[job] - self.ran_s[job]
        return left if left > 0.0 else 0.0
