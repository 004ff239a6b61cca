"""How many rows each table looks up in a step, over its mean: draws that every assignment shares.

    factor = exp(s z - s^2 / 2),   s^2 = ln(1 + spread^2),   z standard normal, one per table and step

Draws are keyed by the name of the table and by what they are for, so that a table's draws do not depend on the others, and what
chooses an assignment is not what judges it.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

ASSUMED_SPREAD = 0.1  # of a step's look-ups into one table where the job states none: an assumption, not a measurement


def lookup_factors(
    tables: Sequence[str], spread: Sequence[float], n_sample: int, seed: int, purpose: str
) -> Float[np.ndarray, "table sample"]:
    """Factors of mean one; stratified, so that a table's draws follow its distribution closely."""
    factors = np.empty((len(tables), n_sample))
    for row, (name, own) in enumerate(zip(tables, spread, strict=True)):
        rng = np.random.default_rng([seed, crc32(purpose.encode()), crc32(name.encode())])
        level = (rng.permutation(n_sample) + rng.random(n_sample)) / n_sample
        log_sd = np.sqrt(np.log1p(own**2))
        factors[row] = np.exp(log_sd * ndtri(level) - 0.5 * log_sd**2)
    return factors
