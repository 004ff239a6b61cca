"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, through ArviZ, which is imported only here."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from prism_jax.errors import FitError

GROUPS_SEEN = 0.7  # Pareto shape above which a group is too influential for the approximation


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
    import xarray

    by_chain = log_likelihood.reshape(n_chain, -1, log_likelihood.shape[1])
    tree = xarray.DataTree.from_dict(
        {
            "/posterior": xarray.Dataset({"index": (("chain", "draw"), np.zeros(by_chain.shape[:2]))}),
            "/log_likelihood": xarray.Dataset({"group": (("chain", "draw", "group_dim_0"), by_chain)}),
        }
    )
    with tempfile.TemporaryDirectory() as folder:  # the one way in that all versions of ArviZ share
        path = Path(folder) / "likelihood.nc"
        tree.to_netcdf(path, engine="h5netcdf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # influential groups are counted below
            found = arviz.loo(arviz.from_netcdf(str(path)), pointwise=True)
    shape = np.asarray(found.pareto_k)
    return {
        "group": what,
        "n_groups": int(by_chain.shape[2]),
        "elpd": float(getattr(found, "elpd_loo", None) or found.elpd),
        "elpd_se": float(found.se),
        "n_effective_parameters": float(getattr(found, "p_loo", None) or found.p),
        "n_too_influential": int((shape > GROUPS_SEEN).sum()),
    }
