"""Simulation-based calibration: parameters drawn from the prior, data simulated from them, fits, ranks of the truth among draws.

Where the simulator, the model and the sampler agree, the rank of a true value among independent posterior draws is uniform,
whatever the data tell (Talts et al., arXiv 1804.06788). Which fits enter may depend on their data and draws, never on the truth:
leaving out those that fail their own verdict keeps the ranks of the others uniform.

All fits of a model share one program, into whose dictionaries the arrays of each data set are put: it is compiled once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer.util import unconstrain_fn
from scipy import stats

from inference.engine.laplace import GOOD_K, Mode, fit_map, fit_svi, mode, start_widths
from inference.engine.model import Model
from inference.engine.nuts import DENSE_UP_TO, _kernel
from inference.engine.program import ModelProgram, PosteriorDraws, Settings, program, traced

Sites = dict[str, np.ndarray]
Simulate = Callable[[Sites, np.random.Generator], Any]
"""(true sites, generator) -> data of the shape of the skeleton."""

N_RANKED = 47  # draws among which a truth is ranked: 48 ranks, eight per bin
N_BIN = 6
FALSE_ALARM = 1e-4  # per number: half for chi-square (clustered ranks), half for Kolmogorov-Smirnov (shifted ranks)
# Short chains, which need not give intervals to two digits but must have met: the ranked draws are nearly independent.
MAX_R_HAT, MIN_ESS, MAX_DIVERGING = 1.05, 2.0 * N_RANKED, 0.05
CHAINS = Settings(n_chain=2, n_warmup=300, n_draw=600)


@dataclass(frozen=True)
class Calibration:
    """Attributes:
    ranks: "site[element]" -> one number in (0, 1) per good fit, uniform if calibrated.
    n_fit: how many were tried.
    failed: why the others failed, by index of the fit.
    """

    ranks: dict[str, np.ndarray]
    n_fit: int
    failed: dict[int, str]

    def p_values(self) -> dict[str, tuple[float, float]]:
        """Chi-square over bins and Kolmogorov-Smirnov, of every number."""
        return {
            name: (_chi_square(rank), float(stats.kstest(rank, "uniform").pvalue)) for name, rank in self.ranks.items()
        }

    def assert_uniform(self, names: Sequence[str], max_failed: float) -> None:
        """Every number of the sites `names` is calibrated; at most a share `max_failed` of the fits failed."""
        assert {name.partition("[")[0] for name in self.ranks} == set(names)
        assert len(self.failed) <= max_failed * self.n_fit, self.failed
        found = {name: p for name, p in self.p_values().items() if min(p) < FALSE_ALARM / 2.0}
        assert not found, {name: (p, np.histogram(self.ranks[name], N_BIN, (0.0, 1.0))[0]) for name, p in found.items()}


def calibrate(
    model: Model,
    skeleton: Any,
    simulate: Simulate,
    *,
    n_fit: int,
    seed: int,
    method: str = "nuts",
    settings: Settings = CHAINS,
) -> Calibration:
    """Ranks of the true values of all reported numbers.

    Args:
        skeleton: data whose shapes, names and covariates all simulated data share; its measurements play no part.
    """
    with jax.enable_x64(True):
        fit, draw = Fits(model, skeleton, settings, method), prior(model, skeleton)
        ranks: dict[str, list[float]] = {}
        failed: dict[int, str] = {}
        for index in range(n_fit):
            rng = np.random.default_rng([seed, index])
            truth = draw(jax.random.key(rng.integers(2**32)))
            sampled = fit(simulate(truth, rng), jax.random.key(rng.integers(2**32)))
            if complaint := _complaint(sampled):
                failed[index] = complaint
                continue
            for name, value in sampled.draws.items():
                for label, rank in _ranks(name, truth[name], value, rng):
                    ranks.setdefault(label, []).append(rank)
    return Calibration({name: np.array(rank) for name, rank in ranks.items()}, n_fit, failed)


def prior(model: Model, data: Any) -> Callable[[jax.Array], Sites]:
    """Function of a key: all sites but observed ones, deterministic ones too, drawn from their priors."""
    arrays, rebuild = traced(data)

    def drawn(key: jax.Array, given: Any) -> dict[str, Any]:
        sites = handlers.trace(handlers.seed(model.program, key)).get_trace(rebuild(given))
        wanted = {name: site for name, site in sites.items() if site["type"] in ("sample", "deterministic")}
        return {name: site["value"] for name, site in wanted.items() if not site.get("is_observed")}

    once = jax.jit(drawn)
    return lambda key: {name: np.array(value) for name, value in once(key, arrays).items()}


class Fits:
    """Fits of one model to data of one shape: draws of the reported sites."""

    def __init__(self, model: Model, skeleton: Any, settings: Settings, method: str) -> None:
        self.model, self.settings, self.method = model, settings, method
        self.made = program(model, skeleton, jax.random.key(0))
        run = self.made.run
        self.free = jax.jit(lambda given, sites: unconstrain_fn(run, (given,), {}, sites))
        first = self.made.constrain(self.made.arrays, self.made.start)
        self.first = {name: first[name] for name in self.made.start}
        self.white = _whitened(self.made)
        self.chain = _kernel(self.white, Mode(np.zeros(self.made.n_dim), np.eye(self.made.n_dim)), settings)
        reported = partial(_reported, self.made, self.made.ravel()[1], model.reported)
        self.back = jax.jit(lambda given, flat: jax.lax.map(partial(reported, given), flat, batch_size=64))

    def __call__(self, data: Any, key: jax.Array) -> PosteriorDraws:
        self.made.arrays.update({name: jnp.asarray(value) for name, value in traced(data)[0].items()})
        start = self.first | {name: jnp.asarray(value, dtype=float) for name, value in self.model.start(data).items()}
        self.made.start.update(self.free(self.made.arrays, start))
        if self.method == "nuts":
            return self._chains(key)
        found = (fit_svi if self.method == "svi" else fit_map)(self.made, self.settings, key)
        return replace(found, draws={name: found.draws[name] for name in self.model.reported if name in found.draws})

    def _chains(self, key: jax.Array) -> PosteriorDraws:
        """As `nuts.sample` does it, but for the whitening, which stands among the arrays."""
        near = mode(self.made) if self.made.n_dim <= DENSE_UP_TO else start_widths(self.made)
        given = {**self.made.arrays, AT: jnp.asarray(near.at), SCALE: jnp.asarray(near.scale)}
        first, block = self.chain
        kept = []
        for chain in range(self.settings.n_chain):
            state, out = first(jax.random.fold_in(key, chain), given), []
            for _ in range(self.settings.n_block):
                state, part = block(state, given)
                out.append(part)
            out = out[self.settings.n_warmup // self.settings.block :]
            kept.append(jax.tree.map(lambda *parts: np.concatenate(parts), *out))
        white, diverging, n_leapfrog = jax.tree.map(lambda *parts: np.stack(parts), *kept)
        flat = near.at + white @ near.scale.T
        draws = self.back(self.made.arrays, jnp.asarray(flat.reshape(-1, self.made.n_dim)))
        draws = {name: np.asarray(value).reshape(*flat.shape[:2], *value.shape[1:]) for name, value in draws.items()}
        return PosteriorDraws(draws, diverging, n_leapfrog)


AT, SCALE = "calibration: centre", "calibration: scale"  # names that no data have


def _whitened(made: ModelProgram) -> ModelProgram:
    """The program over coordinates that its arrays whiten: compiled once for all modes and widths."""
    _, unravel = made.ravel()

    def sites(given: Any, white: Any) -> Any:
        return unravel(given[AT] + given[SCALE] @ white["white"])

    return ModelProgram(
        model=made.model,
        run=made.run,
        arrays={},
        start={"white": jnp.zeros(made.n_dim)},
        potential=lambda given, white: made.potential(_plain(given), sites(given, white)),
        constrain=lambda given, white: made.constrain(_plain(given), sites(given, white)),
    )


def _plain(given: Any) -> Any:
    return {name: value for name, value in given.items() if name not in (AT, SCALE)}


def _reported(made: ModelProgram, unravel: Any, names: Sequence[str], given: Any, flat: Any) -> dict[str, Any]:
    sites = made.constrain(given, unravel(flat))
    return {name: sites[name] for name in names if name in sites}


def _complaint(sampled: PosteriorDraws) -> str:
    """Why a fit is not to be trusted; nothing if it is."""
    if not np.isnan(sampled.k_hat):
        return "" if sampled.k_hat < GOOD_K else f"Pareto shape {sampled.k_hat:.2f}"
    if sampled.diverging.mean() > MAX_DIVERGING:
        return f"{sampled.diverging.mean():.1%} of the transitions diverged"
    for name, value in sampled.draws.items():
        r_hat, ess = split_gelman_rubin(value), effective_sample_size(value)
        if not (np.all(r_hat <= MAX_R_HAT) and np.all(ess >= MIN_ESS)):
            return f"{name}: r-hat {np.max(r_hat):.3f}, {np.min(ess):.0f} effective draws"
    return ""


def _ranks(name: str, true: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> list[tuple[str, float]]:
    """(label, rank) of every element; ranks are spread over their bin, so that uniform ones are uniform numbers."""
    flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    thin = flat[np.linspace(0, len(flat) - 1, N_RANKED).round().astype(int)]
    rank = ((thin < np.ravel(true)).sum(axis=0) + rng.random(thin.shape[1])) / (N_RANKED + 1)
    labels = [name] if thin.shape[1] == 1 else [f"{name}[{i}]" for i in range(thin.shape[1])]
    return list(zip(labels, rank.tolist(), strict=True))


def _chi_square(rank: np.ndarray) -> float:
    return float(stats.chisquare(np.histogram(rank, N_BIN, (0.0, 1.0))[0]).pvalue)
