"""Reports whether an installation works: findings with their remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..core.page import Block, Card, Table
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

    @property
    def words(self) -> str:
        """Finding and remedy, in words."""
        return f"{self.value}. {self.remedy}" if self.remedy else self.value


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

    def card(self) -> Card:
        failed, missing = ([one for one in self.findings if one.state == state] for state in ("failed", "missing"))
        names = ", ".join(one.name for one in failed)
        n = f"{len(failed)} failed, {len(missing)} optional ones missing"
        return Card(
            f"prism-jax {self.release} on Python {self.python}, {self.system}",
            f"Not ready: {names} failed." if failed else "Ready.",
            "bad" if failed else "good",
            facts={one.name: one.words for one in failed or self.findings[:MOST_SHOWN]},
            evidence=f"{len(self.findings)} things looked at, {n}",
            next_step=f"{'what stands above' if failed else 'prism-jax predict llama3_405b_16384'}; --details",
        )

    def blocks(self) -> Sequence[Block]:
        rows = [(one.name, one.state, one.words) for one in self.findings]
        return (Table("Findings", ("name", "state", "value"), rows),)


MOST_SHOWN = 4
