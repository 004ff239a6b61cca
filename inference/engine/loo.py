"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, through ArviZ, which is imported only here."""

from __future__ import annotations

import warnings
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from prism_jax.errors import FitError

GROUPS_SEEN = 0.7  # Pareto shape above which a group is too influential for the approximation


class ArvizLoo(Protocol):
    """What `arviz.loo` returns, as far as the names of its versions agree.

    Attributes:
        pareto_k: [group] Pareto shape of the importance weights.
        se: standard error of the expected log predictive density.
    """

    pareto_k: ArrayLike
    se: float


def loo(log_likelihood: np.ndarray, n_chain: int, what: str) -> dict[str, Any]:
    """Expected log predictive density of groups left out one by one, with its standard error.

    Args:
        log_likelihood: [draw, group], chains one after the other.
        what: what a group is.

    Raises:
        FitError: ArviZ is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ announces its next version once a day
            import arviz
    except ImportError as error:
        raise FitError("leave-one-out needs ArviZ: pip install 'prism-jax[arviz]'") from error
    by_chain = log_likelihood.reshape(n_chain, -1, log_likelihood.shape[1])
    groups = {"posterior": {"index": np.zeros(by_chain.shape[:2])}, "log_likelihood": {"group": by_chain}}
    convert: Any = arviz.from_dict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # influential groups are counted below
        whole = convert(**groups) if arviz.__version__.startswith("0.") else convert(groups)
        found = cast(ArvizLoo, arviz.loo(whole, pointwise=True))
    shape = np.asarray(found.pareto_k)
    return {
        "group": what,
        "n_groups": int(by_chain.shape[2]),
        "elpd": _either(found, "elpd_loo", "elpd"),
        "elpd_se": float(found.se),
        "n_effective_parameters": _either(found, "p_loo", "p"),
        "n_too_influential": int((shape > GROUPS_SEEN).sum()),
    }


def _either(found: ArvizLoo, old: str, new: str) -> float:
    """The attribute under the name of the older ArviZ, else under that of the newer."""
    return float(getattr(found, old if hasattr(found, old) else new))
