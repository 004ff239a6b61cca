"""A model whose posterior is known: normal readings of unknown mean and spread, with the conjugate prior.

precision ~ Gamma(A, B), mean | precision ~ N(0, 1 / (K precision)), reading ~ N(mean, 1 / precision); so the posterior precision
is a gamma variable and the mean a Student-t one (Bernardo and Smith, Bayesian Theory, appendix A).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from scipy import stats

from inference.data.columns import ModelColumn
from inference.engine.diagnostics import Checks
from inference.engine.model import Draws, GroupScore, Model
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import Variability

A, B, K = 2.0, 1.0, 0.5
N_GROUP = 6


@dataclass(frozen=True)
class ToyData:
    """Readings [obs], and the group of each [obs], text."""

    reading: np.ndarray
    group: np.ndarray


class Toy(Model[ToyData]):
    """The model; `score` insists that what it scores was not fitted."""

    name: ClassVar[str] = "toy"
    columns: ClassVar[Sequence[ModelColumn]] = (
        ModelColumn("reading", ("value",), required=True),
        ModelColumn("group", ("team",), text=True),
    )
    reported: ClassVar[tuple[str, ...]] = ("mean", "precision")
    holdout: ClassVar[str] = "folds"
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "svi"

    def prepare(self, frame: pd.DataFrame) -> ToyData:
        group = frame["group"].fillna("") if "group" in frame else pd.Series("", index=frame.index)
        return ToyData(frame["reading"].to_numpy(dtype=float), group.to_numpy(dtype=str))

    def program(self, data: ToyData) -> None:
        precision = jnp.asarray(numpyro.sample("precision", dist.Gamma(A, B)))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0 / jnp.sqrt(K * precision)))
        spread = numpyro.deterministic("spread", 1.0 / jnp.sqrt(precision))
        numpyro.sample("obs", dist.Normal(mean, spread), obs=jnp.asarray(data.reading))

    def start(self, data: ToyData) -> dict[str, Any]:
        return {"precision": 1.0, "mean": 0.0}

    def describe(self, data: ToyData, draws: Draws) -> dict[str, Any]:
        return {"mean": float(draws["mean"].mean()), "n": len(data.reading), "groups": sorted(set(data.group))}

    def variability(self, data: ToyData, draw: Mapping[str, np.ndarray]) -> Variability:
        return Variability("toy", step=LogNormal(float(draw["spread"])))

    def score(
        self, data: ToyData, draws: Draws, left_out: pd.DataFrame, column: str, key: jax.Array
    ) -> list[GroupScore]:
        assert column == "group"
        assert "" not in left_out["group"].fillna("").to_list()
        out = sorted(left_out["group"].unique())
        assert not set(out) & set(data.group), "a group was fitted and scored"
        assert "" not in data.group, "a row of no group cannot be told from those left out"
        error = abs(float(draws["mean"].mean()) - left_out["reading"].to_numpy(dtype=float).mean())
        return [
            GroupScore(name, coverage_90=1.0, extra={"error": error, "n_fitted": float(len(data.reading))})
            for name in out
        ]

    def replicate(self, data: ToyData, draws: Draws, key: jax.Array) -> Checks:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key), dtype=np.uint32))
        noise = rng.standard_normal((len(draws["mean"]), len(data.reading)))
        return Checks(data.reading, draws["mean"][:, None] + draws["spread"][:, None] * noise, "reading")


class Halves(Toy):
    """The same, where random halves of the groups are left out."""

    holdout: ClassVar[str] = "halves"


def readings(n: int = 60, *, seed: int = 1, mean: float = 1.5, spread: float = 0.7) -> pd.DataFrame:
    """`n` readings of `N_GROUP` groups."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"reading": mean + spread * rng.standard_normal(n), "group": [f"g{i % N_GROUP}" for i in range(n)]}
    )


def exact(frame: pd.DataFrame) -> dict[str, Any]:
    """Site -> its marginal posterior, as a frozen law of SciPy."""
    x = frame["reading"].to_numpy(dtype=float)
    n, average = len(x), x.mean()
    a, k = A + n / 2.0, K + n
    b = B + 0.5 * ((x - average) ** 2).sum() + 0.5 * K * n * average**2 / k
    return {
        "mean": stats.t(2.0 * a, loc=n * average / k, scale=np.sqrt(b / (a * k))),
        "precision": stats.gamma(a, scale=1.0 / b),
    }
