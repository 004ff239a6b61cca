"""AVAILABILITY: laws of spot capacity by name; a law that ships is one line here."""

from __future__ import annotations

from collections.abc import Iterable

from ..._core.registry import Registry
from .base import Availability
from .weibull import WeibullSpells


def _shipped() -> Iterable[Availability]:
    return (
        WeibullSpells(
            up_mean_s=3.97 * 3600.0,
            up_shape=0.75,
            down_mean_s=1.91 * 3600.0,
            name="weibull",
            source="single V100 spot instances on AWS, early 2023: medians over six zones of mean spell and share of time, "
            "middle of the shapes .58 to .90 (skypilot-org/spot-traces); state another law where you know your zone",
        ),
    )


AVAILABILITY: Registry[Availability] = Registry("law of availability", _shipped)
"""What --availability names."""
