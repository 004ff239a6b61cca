"""A part of the nodes on demand at all times, the rest on spot while there is some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from .base import ON_DEMAND, SPOT, Use, View

HALF = (Use(0.0, 0.0, 0.0), Use(1.0, 0.5, 0.5), Use(0.5, 0.0, 0.5))


@dataclass(frozen=True)
class Mixture:
    """Half of the nodes on demand; where spot is lost the job goes on with them, at half the pace and the same batch."""

    name: str = "mixture"
    needs_spot: bool = True
    needs_on_demand: bool = True
    uses: tuple[Use, Use, Use] = field(default=HALF)

    def place(self, view: View) -> Any:
        """See `Policy`."""
        return jnp.where(view.spot_up, SPOT, ON_DEMAND)

    def changes_in_s(self, view: View) -> Any:
        """Never."""
        return jnp.full_like(view.work_left_s, jnp.inf)
