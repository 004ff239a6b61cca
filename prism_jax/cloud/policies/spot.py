"""Spot whenever there is some; else the job waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .base import SPOT, WAIT, Use, View


@dataclass(frozen=True)
class Spot:
    """Spot whenever there is some; else the job waits."""

    name: str = "spot"
    needs_spot: bool = True
    needs_on_demand: bool = False
    uses: tuple[Use, Use, Use] = (Use(0.0, 0.0, 0.0), Use(1.0, 1.0, 0.0), Use(0.0, 0.0, 0.0))

    def place(self, view: View) -> Any:
        """See `Policy`."""
        return jnp.where(view.spot_up, SPOT, WAIT)

    def changes_in_s(self, view: View) -> Any:
        """Never."""
        return jnp.full_like(view.work_left_s, jnp.inf)
