"""Probabilities of slow steps and slow jobs against the step without variability, and their closed form where one GPU decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import gamma

from prism_jax import Job, load_job, predict
from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.graph.draws import typed_key
from prism_jax.horizon.steps import StepSum
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.simulate.allocation import allocation_spread
from prism_jax.simulate.inputs import known_gpus
from prism_jax.simulate.program import lower
from prism_jax.study.scaling import job_of_size
from prism_jax.variability.families import Normal
from prism_jax.variability.tree import ClassVariability, Variability


@dataclass(frozen=True)
class SlowdownRow:
    """One job at one size and spread.

    Attributes:
        n_gpu: GPUs.
        scale: factor of every spread.
        healthy_s: the step without variability.
        p50, p95: quantiles of the step over it.
        step_prob, job_prob: slow-down d -> probability that a step, or all steps of the job, take more than 1 + d times as long.
        error: largest standard error of `step_prob`, from independent randomisations.
    """

    job: str
    n_gpu: int
    scale: float
    healthy_s: float
    p50: float
    p95: float
    step_prob: Mapping[float, float]
    job_prob: Mapping[float, float]
    error: float


def slowdown_row(name: str, job: Job, n_gpu: int, scale: float, config: Mapping[str, Any]) -> SlowdownRow:
    """Predicts the job at `n_gpu` GPUs with its spreads times `scale`."""
    sized = job_of_size(job, n_gpu, "weak")
    varied = replace(sized, variability=sized.variability.scaled(scale))
    key = typed_key(config["seed"])
    steps = predict(varied, key=key, n_samples=config["n_samples"])
    spread = allocation_spread(lower(varied), steps, key)
    total = StepSum.of_spread(steps, spread, varied.variability)
    bounds = {d: (1.0 + d) * steps.deterministic_s for d in config["slowdowns"]}
    return SlowdownRow(
        job=name,
        n_gpu=n_gpu,
        scale=scale,
        healthy_s=steps.deterministic_s,
        p50=steps.quantile(0.5) / steps.deterministic_s,
        p95=steps.quantile(0.95) / steps.deterministic_s,
        step_prob={d: steps.prob_above(bound) for d, bound in bounds.items()},
        job_prob={d: job_prob(total, bound, config["n_steps"]) for d, bound in bounds.items()},
        error=max(_error(steps, bound) for bound in bounds.values()),
    )


def _error(steps: StepTimeDistribution, bound_s: float) -> float:
    above = (steps.batches_s > bound_s).mean(axis=1)
    return float(above.std(ddof=1) / np.sqrt(len(above)))


def job_prob(total: StepSum, bound_s: float, n_steps: int) -> float:
    """Probability that `n_steps` steps take more than `bound_s` each on average, fleets and steps drawn; no failures."""
    mean, variance = n_steps * total.mean_s, total.variance(n_steps)
    if variance <= 1e-18 * mean**2:
        return float(mean > n_steps * bound_s)
    return float(gamma.sf(n_steps * bound_s, mean**2 / variance, scale=variance / mean))


def closed_form_errors(config: Mapping[str, Any], seed: int, sizes: Sequence[int]) -> dict[str, tuple[float, float]]:
    """Probabilities of slow steps where one GPU decides: 1 - (1 - p)^n, and as predicted.

    A replica is one GPU and chips alone vary, so a step takes longer than a bound if any chip is slower than the factor at which
    one slow GPU among steady ones makes it so; p is the probability of a slower chip. Their factors are normal, since the map of
    any other family is linear in pieces (within 5e-5 of the time, which moves probabilities by up to 3e-3).
    """
    job, found = load_job(config["job"], config["set"]), {}
    varying = Variability("chips", dict.fromkeys(COMPUTE_CLASSES, ClassVariability(gpu=Normal(config["cv"]))))
    for n_gpu in sizes:
        sized = job_of_size(job, n_gpu, "weak")
        steps = predict(replace(sized, variability=varying), key=seed, n_samples=config["n_samples"])
        steady = replace(sized, variability=Variability())
        for d in config["slowdowns"]:

            def excess(factor: float, calm: Job = steady, n: int = n_gpu, slower: float = d) -> float:
                gpus = known_gpus({"all": {0: factor}}, n)
                one = predict(calm, key=seed, n_samples=64, known=gpus)
                return float(one.samples_s[-1]) / one.deterministic_s - 1.0 - slower

            factor = float(brentq(excess, 1.0, 1.0 + 4.0 * d, xtol=1e-7))  # pyright: ignore[reportArgumentType]
            slower_prob = float(ndtr((1.0 - factor) / config["cv"]))
            exact = float(-np.expm1(n_gpu * np.log1p(-slower_prob)))
            found[f"{n_gpu} GPUs, {d:.0%} slower"] = exact, steps.prob_above((1.0 + d) * steps.deterministic_s)
    return found
