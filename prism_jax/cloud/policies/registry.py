"""POLICIES: rules by name; a policy that ships is one line here."""

from __future__ import annotations

from collections.abc import Iterable

from ..._core.registry import Registry
from .base import Policy


def _shipped() -> Iterable[Policy]:
    from .fallback import SpotWithFallback
    from .mixture import Mixture
    from .on_demand import OnDemand
    from .spot import Spot

    return (OnDemand(), Spot(), SpotWithFallback(), Mixture())


POLICIES: Registry[Policy] = Registry("policy", _shipped)
"""What a search of the cloud may choose from."""
