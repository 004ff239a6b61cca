"""Whether the data ask for a second component: slow chips among the GPUs, far nodes among the nodes.

The model without the component is the model with a share of zero, so the Bayes factor for the component is the prior probability
of a share below one member (1/n) over the posterior one (Savage and Dickey's density ratio, with a narrow interval in place of
the point). Where the factor is small, shift and spread of the component are its prior: they are neither reported nor judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from ...engine import priors
from ...model import Draws
from .data import FleetData

POSITIVE = 3.0  # Bayes factor of "positive" evidence (Kass and Raftery, JASA 90, 1995)


@dataclass(frozen=True)
class Component:
    """A second component of the population.

    Attributes:
        share: [...] draws of its share of the members.
        n_member: measured GPUs or nodes.
    """

    share: np.ndarray
    n_member: int

    @property
    def bayes_factor(self) -> float:
        """For the component against none; as large as the number of draws can tell."""
        fewer_than_one = 1.0 / self.n_member
        before = float(beta.cdf(2.0 * fewer_than_one, *priors.SLOW_PROB))  # the share is half of a Beta
        after = float(np.mean(self.share < fewer_than_one))
        return before / max(after, 1.0 / self.share.size)

    @property
    def is_found(self) -> bool:
        """Whether the data ask for it."""
        return self.bayes_factor >= POSITIVE


def slow_chips(data: FleetData, draws: Draws) -> Component:
    """The component of slow (or fast) chips; draws in any shape."""
    return Component(draws["slow_prob"], len(data.gpu))


def far_nodes(data: FleetData, draws: Draws) -> Component:
    """The component of nodes that lie far from the others."""
    return Component(draws["far_prob"], len(data.node))
