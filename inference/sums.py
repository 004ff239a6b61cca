"""Models by a sum of terms, whatever their table: `saves` names its columns and terms.

    ln t = ln sum_i c_i x_i + sum_levels e_group + error,    c_i > 0

x_i are the seconds that a term is expected to take: all c_i are near 1. Repeats of one thing are one cell, so that a thing
that was run often does not count more than another, and so that no repeat tells a fit about the thing itself when it is left out.
A cell's own error has heavy tails, since a thing may be unlike all others, and groups of one level may be more or less alike
inside; repeats of a cell are normal around it. Their spreads are stated, not inferred: a table has two GPUs or two families,
which do not tell a spread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.core.errors import DataError, FitError

from .data.checks import groups_of, texts_of
from .engine.model import Draws, GroupScore, Model, interval
from .engine.program import Scale, generator

MOST_CELLS = 5000
MOST_EFFECTS = 400
MISFIT = Scale(0.05, 2.0)  # of cells: things that agree in all totals differ by 1 to 20%
NOISE = Scale(0.02, 3.0)  # of repeats: 0.2 to 20%
UNEVEN_SD = 0.7  # of the log of a group's own misfit around that of all: half to twice
TAIL = 4.0  # degrees of freedom of the errors of cells
REPORTED = ("log_factor", "misfit", "noise")


@dataclass(frozen=True)
class SumTerm:
    """One term of a sum.

    Attributes:
        name: for people.
        factor: one standard deviation of its prior, as a factor on its size.
    """

    name: str
    factor: float


@dataclass(frozen=True)
class SumsData:
    """Data for the program of `sums`.

    Attributes:
        terms: names; factor: of their priors, [term].
        levels: columns whose groups have effects; spread: standard deviation of the effects of each, [level].
        effects: "column value" of every group met; level: which column it is of, [effect].
        uneven: place of the level whose groups have an error of their own each; -1: no level.
        size: seconds of every term as expected before any measurement, [cell, term].
        member: 1 where a cell is in a group, [cell, effect].
        log_s: mean log seconds, [cell]; n: rows of it, [cell].
        within: sum of squares of rows around the mean of their cell; n_within: its degrees of freedom.
        notes: what was assumed.
    """

    terms: Annotated[tuple[str, ...], "term"]
    factor: Annotated[np.ndarray, "term"]
    levels: Annotated[tuple[str, ...], "level"]
    spread: Annotated[np.ndarray, "level"]
    effects: Annotated[tuple[str, ...], "effect"]
    level: Annotated[np.ndarray, "effect -> level"]
    uneven: int
    size: Annotated[np.ndarray, "cell term"]
    member: Annotated[np.ndarray, "cell effect"]
    log_s: Annotated[np.ndarray, "cell"]
    n: Annotated[np.ndarray, "cell"]
    within: float
    n_within: int
    notes: tuple[str, ...] = ()


def sums_data(
    frame: pd.DataFrame,
    sizes: np.ndarray,
    seconds: str,
    terms: Sequence[SumTerm],
    levels: Mapping[str, float],
    *,
    uneven: str = "",
    notes: tuple[str, ...] = (),
) -> SumsData:
    """Cells of a checked table: rows that agree in their sizes and groups.

    Args:
        sizes: seconds of every term as expected, [row, term].
        seconds: column that was measured.
        levels: column -> spread of its groups; a column that is absent has no groups.
        uneven: the level, if any, whose groups are not equally well described.

    Raises:
        DataError: no row, sizes that are no finite numbers, or too many cells or groups.
    """
    if not len(frame):
        raise DataError(f"no row has {seconds} and the sizes that it depends on")
    if not np.isfinite(sizes).all():
        raise DataError("sizes of a row are too large to be numbers. Are the units what they should be?")
    groups = [texts_of(frame, name) for name in levels]
    effects = sorted({(place, text) for place, column in enumerate(groups) for text in column if text})
    keys = pd.DataFrame([*groups, *sizes.T]).T.astype(str).agg("|".join, axis=1).to_numpy()
    _, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > MOST_CELLS or len(effects) > MOST_EFFECTS:
        raise DataError(
            f"{len(first):,} things in {len(effects):,} groups, but at most {MOST_CELLS:,} in {MOST_EFFECTS:,} can be fitted. "
            "Are the columns what they should be?"
        )
    log_s = np.log(frame[seconds].to_numpy(dtype=float))
    n = np.bincount(cell).astype(float)
    mean = np.bincount(cell, log_s) / n
    return SumsData(
        terms=tuple(term.name for term in terms),
        factor=np.array([term.factor for term in terms]),
        levels=tuple(levels),
        spread=np.array(list(levels.values()), dtype=float),
        effects=tuple(f"{tuple(levels)[place]} {text}" for place, text in effects),
        level=np.array([place for place, _ in effects], dtype=np.int64),
        uneven=tuple(levels).index(uneven) if uneven else -1,
        size=sizes[first],
        member=membership(effects, [[column[row] for row in first] for column in groups]),
        log_s=mean,
        n=n,
        within=float(((log_s - mean[cell]) ** 2).sum()),
        n_within=int(len(log_s) - len(first)),
        notes=notes,
    )


def chosen(what: str, name: str, known: Sequence[str]) -> str:
    """A group of a fit by its name; the only one where none is named.

    Raises:
        FitError: no such group, or several and none is named.
    """
    if not name and len(known) == 1:
        return known[0]
    if name not in known:
        told = ", ".join(one[:40] for one in known[:10])
        raise FitError(f"{what} {name[:40]!r} is not in the fit; it has {told}. Name one of them.")
    return name


def membership(effects: Sequence[tuple[int, str]], groups: Sequence[Sequence[str]]) -> np.ndarray:
    """1 where a row is in the group of an effect, [row, effect]; of `groups` [level][row]."""
    n_row = len(groups[0]) if groups else 0
    out = np.zeros((n_row, len(effects)))
    for column, (place, text) in enumerate(effects):
        out[:, column] = [given == text for given in groups[place]]
    return out


def effects_of(data: SumsData, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log effect of every group met, [draw, effect]."""
    if not data.effects:
        return np.zeros((len(draws["misfit"]), 0))
    return data.spread[data.level] * np.asarray(draws["deviation"])


def misfits_of(data: SumsData, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log of the own misfit of every group over that of all, [draw, effect]; 0 of groups of other levels."""
    if data.uneven < 0:
        return np.zeros((len(draws["misfit"]), len(data.effects)))
    return UNEVEN_SD * np.asarray(draws["unevenness"]) * (data.level == data.uneven)


Predict = Callable[[pd.DataFrame, np.random.Generator], np.ndarray]


def log_seconds(
    data: SumsData,
    draws: Draws,
    sizes: np.ndarray,
    groups: Sequence[Sequence[str]],
    rng: np.random.Generator,
    *,
    with_noise: bool = True,
) -> np.ndarray:
    """Log seconds of rows [draw, row]; rows of equal sizes and groups share the error of their cell.

    Args:
        sizes: as expected, [row, term].
        groups: of every level, [level][row]; a group that the fit has not seen has an effect that is drawn.
        with_noise: whether repeats scatter.
    """
    known = [(int(place), name.split(" ", 1)[1]) for place, name in zip(data.level, data.effects, strict=True)]
    member = membership(known, groups)
    mean = np.log(np.exp(np.asarray(draws["log_factor"])) @ sizes.T) + effects_of(data, draws) @ member.T
    own = misfits_of(data, draws) @ member.T
    for place, names in enumerate(groups):
        for name in sorted(set(names) - {""} - {text for at, text in known if at == place}):
            new = [at == name for at in names]
            mean[:, new] += data.spread[place] * rng.standard_normal((len(mean), 1))
            if place == data.uneven:
                own[:, new] += UNEVEN_SD * rng.standard_normal((len(mean), 1))
    cell = _cells(sizes, groups)
    error = rng.standard_t(TAIL, (len(mean), int(cell.max(initial=0)) + 1))[:, cell]
    mean = mean + np.asarray(draws["misfit"])[:, None] * np.exp(own) * error
    return mean + with_noise * np.asarray(draws["noise"])[:, None] * rng.standard_normal(mean.shape)


def _cells(sizes: np.ndarray, groups: Sequence[Sequence[str]]) -> np.ndarray:
    """Number of the cell of every row, [row]."""
    keys = ["|".join(map(str, (*size, *group))) for size, group in zip(sizes, zip(*groups, strict=True), strict=True)]
    return np.unique(np.array(keys, dtype=str), return_inverse=True)[1]


def group_scores(
    left_out: pd.DataFrame, column: str, seconds: str, predict: Predict, trivial: Callable[..., np.ndarray], key: Array
) -> list[GroupScore]:
    """One score per group: mean relative error of the median and of the trivial prediction, coverage of rows.

    Args:
        predict: log seconds [draw, row] of rows.
        trivial: seconds [row] of rows, by the plainest rule.
    """
    rng, out = generator(key), []
    for name, rows in groups_of(left_out, column):
        measured = rows[seconds].to_numpy(dtype=float)
        low, middle, high = np.exp(np.quantile(predict(rows, rng), [0.05, 0.5, 0.95], axis=0))
        extra = {
            "mape": float(np.mean(np.abs(middle / measured - 1.0))),
            "mape_trivial": float(np.mean(np.abs(trivial(rows) / measured - 1.0))),
            "n_rows": float(len(rows)),
        }
        inside = float(((measured >= low) & (measured <= high)).mean())
        out.append(GroupScore(group=name, coverage_90=inside, extra=extra))
    return out


class AbstractSums(Model[SumsData]):
    """A model by a sum of terms.

    Attributes:
        seconds: column that was measured.
        levels: column -> standard deviation of the effects of its groups, in log seconds.
    """

    seconds: ClassVar[str]
    levels: ClassVar[Mapping[str, float]]
    reported = REPORTED

    @abstractmethod
    def sizes(self, frame: pd.DataFrame) -> np.ndarray:
        """Seconds of every term as expected before any measurement, [row, term]."""

    @abstractmethod
    def trivial(self, data: SumsData, frame: pd.DataFrame) -> np.ndarray:
        """Seconds [row] by the plainest rule, which scores print for comparison."""

    def program(self, data: SumsData) -> None:
        """Factors of terms, effects of groups (non-centred), errors."""
        factor = jnp.log(jnp.asarray(data.factor))
        log_factor = jnp.asarray(numpyro.sample("log_factor", dist.Normal(0.0, factor).to_event(1)))
        mean = jnp.log(jnp.asarray(data.size) @ jnp.exp(log_factor))
        member = jnp.asarray(data.member)
        if data.effects:
            deviation = jnp.asarray(numpyro.sample("deviation", dist.Normal().expand([len(data.effects)]).to_event(1)))
            mean = mean + member @ (jnp.asarray(data.spread)[jnp.asarray(data.level)] * deviation)
        misfit = jnp.asarray(numpyro.sample("misfit", MISFIT.law()))
        noise = jnp.asarray(numpyro.sample("noise", NOISE.law()))
        if data.uneven >= 0:
            own = jnp.asarray(numpyro.sample("unevenness", dist.Normal().expand([len(data.effects)]).to_event(1)))
            misfit = misfit * jnp.exp(member @ (UNEVEN_SD * own * (jnp.asarray(data.level) == data.uneven)))
        scale = jnp.sqrt(misfit**2 + noise**2 / jnp.asarray(data.n))
        numpyro.factor("cells", dist.StudentT(TAIL, mean, scale).log_prob(jnp.asarray(data.log_s)).sum())
        numpyro.factor("repeats", -data.n_within * jnp.log(noise) - 0.5 * data.within / noise**2)

    def start(self, data: SumsData) -> dict[str, Any]:
        """The centres of the priors."""
        start: dict[str, Any] = {
            "log_factor": np.zeros(len(data.terms)),
            "misfit": np.asarray(MISFIT.median),
            "noise": np.asarray(NOISE.median),
        }
        if data.effects:
            start["deviation"] = np.zeros(len(data.effects))
        if data.uneven >= 0:
            start["unevenness"] = np.zeros(len(data.effects))
        return start

    def describe(self, data: SumsData, draws: Draws) -> dict[str, Any]:
        """Factors on what was expected of the terms, effects of groups, errors."""
        factor, effect = np.exp(np.asarray(draws["log_factor"])), np.exp(effects_of(data, draws))
        return {
            "n_things": len(data.log_s),
            "n_rows": int(data.n.sum()),
            "times_expected": {name: interval(factor[:, place]) for place, name in enumerate(data.terms)},
            "groups": {name: interval(effect[:, place]) for place, name in enumerate(data.effects)},
            "misfit": interval(draws["misfit"]),
            "noise": interval(draws["noise"]),
            "notes": list(data.notes),
        }

    def predict(
        self, data: SumsData, draws: Draws, frame: pd.DataFrame, rng: np.random.Generator, *, with_noise: bool = True
    ) -> np.ndarray:
        """Log seconds of the rows of a checked table, [draw, row]."""
        groups = [texts_of(frame, name) for name in self.levels]
        return log_seconds(data, draws, self.sizes(frame), groups, rng, with_noise=with_noise)

    def score(self, data: SumsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[GroupScore]:
        """Mean relative errors of groups that were left out, with those of the trivial prediction."""
        return group_scores(
            left_out,
            column,
            self.seconds,
            lambda rows, rng: self.predict(data, draws, rows, rng),
            lambda rows: self.trivial(data, rows),
            key,
        )
