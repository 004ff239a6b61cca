"""Whether to trust a fit: the verdict on its draws, measured values against replicated ones, and leave-one-out.

The verdict is r-hat, effective sample size, divergences or the Pareto shape, and one sentence that says so. Leave-one-out is by
Pareto-smoothed importance sampling through ArviZ, which is imported only here.

`one_blas_thread` keeps BLAS from threads of its own: matrices of a fit are small and many, and chains and blocks of draws already
share the cores. OpenBLAS's threads, which JAX's factorisations use too, then wait for one another: on two busy cores a density
with four factors of 252 rows took 0.8 s, not 5 ms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from threadpoolctl import threadpool_limits

from prism_jax.core.errors import FitError
from prism_jax.fits.report import Verdict

from .laplace import GOOD_K
from .program import PosteriorDraws

LEVELS = (0.5, 0.9)


@dataclass(frozen=True)
class Checks:
    """Measured values and draws of what the model would have measured in their place.

    Attributes:
        measured: [obs].
        predicted: [draw, obs].
        what: what an observation is, with its unit.
    """

    measured: np.ndarray
    predicted: np.ndarray
    what: str

    def __post_init__(self) -> None:
        if self.measured.ndim != 1 or self.predicted.shape[1:] != self.measured.shape:
            raise ValueError(f"replicated {self.predicted.shape} against measured {self.measured.shape}")

    @property
    def pit(self) -> np.ndarray:
        """Probability integral transform [obs]: share of draws below each measured value, ties halved; uniform if calibrated."""
        below = (self.predicted < self.measured).mean(axis=0)
        ties = (self.predicted == self.measured).mean(axis=0)
        return below + 0.5 * ties

    def coverage(self, level: float) -> float:
        """Share of measured values inside their central `level` interval."""
        low, high = np.quantile(self.predicted, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return float(np.mean((self.measured >= low) & (self.measured <= high)))

    def crps(self) -> float:
        """Mean continuous ranked probability score, in the unit of the values.

        Source: Gneiting and Raftery, JASA 102 (2007), equation 21, by sorted draws.
        """
        ordered = np.sort(self.predicted, axis=0)
        n = len(ordered)
        weight = (2.0 * np.arange(1, n + 1) - n - 1.0) / n**2
        return float((np.abs(self.predicted - self.measured).mean(axis=0) - weight @ ordered).mean())

    def as_dict(self) -> dict[str, object]:
        """Figures, for JSON; `crps_of_median` is the mean absolute error of the median, which a useful spread undercuts."""
        from scipy.stats import kstest  # half a second, which a fit without scores does not pay

        median = np.median(self.predicted, axis=0)
        found = kstest(self.pit, "uniform")
        return {
            "what": self.what,
            "n": len(self.measured),
            "pit_ks": float(found.statistic),
            "pit_ks_p_value": float(found.pvalue),
            **{f"coverage_{int(100 * level)}": self.coverage(level) for level in LEVELS},
            "crps": self.crps(),
            "crps_of_median": float(np.abs(median - self.measured).mean()),
        }


MAX_R_HAT = 1.01  # Vehtari et al., Rank-normalization, folding, and localization, Bayesian Analysis 16 (2021)
MIN_ESS = 400.0  # the same: 100 per chain for four chains
# Of a failed verdict: too few draws, parts out of reach, a poor method
CAUSES = ("chains", "divergences", "approximation")
MAX_DIVERGING = 0.002  # share of draws; beyond it some region is not visited


def verdict(sampled: PosteriorDraws, reported: Sequence[str]) -> Verdict:
    """The verdict on the draws of the sites `reported` (those that a fit has)."""
    if not np.isnan(sampled.k_hat):
        return _of_approximation(sampled)
    r_hat, ess = {}, {}
    for name in reported:
        if name not in sampled.draws:
            continue
        for label, draws in _scalars(name, sampled.draws[name]):
            r_hat[label] = float(split_gelman_rubin(draws))
            ess[label] = float(effective_sample_size(draws))
    n_diverging = int(sampled.diverging.sum())
    worst_r, worst_e = max(r_hat, key=lambda n: _bad(r_hat[n])), min(ess, key=lambda n: -_bad(-ess[n]))
    return _of_chains(sampled, r_hat[worst_r], worst_r, ess[worst_e], worst_e, n_diverging)


def _of_chains(
    sampled: PosteriorDraws, r_hat: float, worst_r: str, ess: float, worst_e: str, n_diverging: int
) -> Verdict:
    n_chain, n_draw = sampled.diverging.shape
    failed, cause = [], "chains"
    if not r_hat <= MAX_R_HAT:
        failed.append(f"r-hat of {worst_r} is {r_hat:.3f}, above {MAX_R_HAT}: the chains disagree")
    if not ess >= MIN_ESS:
        failed.append(f"{worst_e} has {ess:.0f} effective draws, fewer than {MIN_ESS:.0f}")
    if n_diverging > MAX_DIVERGING * n_chain * n_draw:
        failed.append(f"{n_diverging} of {n_chain * n_draw:,} transitions diverged")
        cause = "divergences"
    facts = (
        f"largest r-hat {r_hat:.3f} ({worst_r}), fewest effective draws {ess:.0f} ({worst_e}), {n_diverging} divergent"
    )
    if not failed:
        return Verdict(True, f"good: {facts}", r_hat, ess, worst_r, n_diverging, np.nan)
    worst = worst_r if not r_hat <= MAX_R_HAT else worst_e
    return Verdict(False, f"failed: {'; '.join(failed)}", r_hat, ess, worst, n_diverging, np.nan, cause)


def _of_approximation(sampled: PosteriorDraws) -> Verdict:
    k_hat, n_draw = sampled.k_hat, float(sampled.diverging.size)
    ok = k_hat < GOOD_K
    how, place = ("good", "is close to") if ok else ("failed", "misses part of")
    shape = f"Pareto shape {k_hat:.2f}, {'' if ok else 'not '}below {GOOD_K}"
    sentence = f"{how}: the normal approximation {place} the posterior ({shape})"
    return Verdict(ok, sentence, np.nan, n_draw, "", 0, k_hat, "" if ok else "approximation")


def _bad(value: float) -> float:
    """NaN counts as worst."""
    return np.inf if np.isnan(value) else value


def _scalars(name: str, draws: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """(label, [chain, draw]) of every number of a site."""
    flat = draws.reshape(*draws.shape[:2], -1)
    if flat.shape[2] == 1:
        return [(name, flat[:, :, 0])]
    return [(f"{name}[{i}]", flat[:, :, i]) for i in range(flat.shape[2])]


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
    by_chain = log_likelihood.reshape(n_chain, -1, log_likelihood.shape[1])
    groups = {"posterior": {"index": np.zeros(by_chain.shape[:2])}, "log_likelihood": {"group": by_chain}}
    convert: Any = arviz.from_dict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # influential groups are counted below
        whole = convert(**groups) if arviz.__version__.startswith("0.") else convert(groups)
        found: Any = arviz.loo(whole, pointwise=True)
    shape = np.asarray(found.pareto_k)
    return {
        "group": what,
        "n_groups": int(by_chain.shape[2]),
        "elpd": _either(found, "elpd_loo", "elpd"),
        "elpd_se": float(found.se),
        "n_effective_parameters": _either(found, "p_loo", "p"),
        "n_too_influential": int((shape > GROUPS_SEEN).sum()),
    }


def _either(found: Any, old: str, new: str) -> float:
    """The attribute under the name of the older ArviZ, else under that of the newer."""
    return float(getattr(found, old if hasattr(found, old) else new))


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def one_blas_thread(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, in which BLAS has one thread; limits are set at each call, since libraries are loaded late and calls nest."""

    @wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
