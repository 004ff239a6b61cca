"""On demand from start to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .base import ON_DEMAND, Use, View


@dataclass(frozen=True)
class OnDemand:
    """On demand from start to end."""

    name: str = "on_demand"
    needs_spot: bool = False
    needs_on_demand: bool = True
    uses: tuple[Use, Use, Use] = (Use(0.0, 0.0, 0.0), Use(1.0, 0.0, 1.0), Use(1.0, 0.0, 1.0))

    def place(self, view: View) -> Any:
        """See `Policy`."""
        return jnp.full_like(view.place, ON_DEMAND)

    def changes_in_s(self, view: View) -> Any:
        """Never."""
        return jnp.full_like(view.work_left_s, jnp.inf)
