"""Whether to trust a fit: r-hat, effective sample size, divergences or the Pareto shape, and one sentence that says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from prism_jax.report.types.fit import Verdict

from .importance import GOOD_K
from .sampled import Sampled

MAX_R_HAT = 1.01  # Vehtari et al., Rank-normalization, folding, and localization, Bayesian Analysis 16 (2021)
MIN_ESS = 400.0  # the same: 100 per chain for four chains
CAUSES = (
    "chains",
    "divergences",
    "approximation",
)  # of a failed verdict: too few draws, parts out of reach, a poor method
MAX_DIVERGING = 0.002  # share of draws; beyond it some region is not visited


def verdict(sampled: Sampled, reported: Sequence[str]) -> Verdict:
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


def _of_chains(sampled: Sampled, r_hat: float, worst_r: str, ess: float, worst_e: str, n_diverging: int) -> Verdict:
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


def _of_approximation(sampled: Sampled) -> Verdict:
    k_hat, n_draw = sampled.k_hat, float(sampled.diverging.size)
    ok = k_hat < GOOD_K
    if ok:
        sentence = (
            f"good: the normal approximation is close to the posterior (Pareto shape {k_hat:.2f}, below {GOOD_K})"
        )
    else:
        sentence = f"failed: the normal approximation misses part of the posterior (Pareto shape {k_hat:.2f}, not below {GOOD_K})"
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
