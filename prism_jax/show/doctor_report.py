"""Reports whether an installation works: findings with their remedies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..core.report import Report, shown

State = Literal["ok", "failed", "missing"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what was looked at.
        state: "ok"; "failed" where predictions will fail; "missing" where something optional is not there.
        value: what was found.
        remedy: what to do; empty where nothing is to be done.
    """

    name: str
    state: State
    value: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorReport(Report):
    """Whether an installation works, and what to do where it does not.

    Attributes:
        release: version of prism-jax.
        python: version of Python.
        system: operating system and processor.
        findings: in the order in which they were looked at.
    """

    kind: ClassVar[str] = "doctor"

    release: str
    python: str
    system: str
    findings: tuple[Finding, ...]

    @shown
    def is_ready(self) -> bool:
        """Whether nothing has failed."""
        return all(finding.state != "failed" for finding in self.findings)

    def lines(self) -> list[str]:
        failed = [finding.name for finding in self.findings if finding.state == "failed"]
        verdict = f"not ready: {', '.join(failed)} failed" if failed else "ready"
        head = f"prism-jax {self.release} on Python {self.python}, {self.system}: {verdict}"
        width = max((len(finding.name) for finding in self.findings), default=0)
        found = (f"  {item.state:<7}  {item.name:<{width}}  {_told(item)}" for item in self.findings)
        return [head, *found]


def _told(finding: Finding) -> str:
    return f"{finding.value}. {finding.remedy}" if finding.remedy else finding.value
