"""One call for every model and method: measurements in, posterior out.

The rows of a table have one order, whatever order its file has, so that sums and fingerprints do not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import FitError
from prism_jax.core.processes import Progress, part_of, silent
from prism_jax.core.registry import did_you_mean
from prism_jax.fits.models import CollectiveRun, model_named
from prism_jax.fits.report import Verdict

from ..collectives.data import known_op
from ..collectives.model import Collectives
from ..data.clean import Measurements, naming
from ..data.columns import ModelColumn
from ..data.read import read_measurements, tidy
from ..engine.diagnostics import one_blas_thread, verdict
from ..engine.laplace import ADAPT_UP_TO, GOOD_K, around, fit_map, fit_svi, weighted
from ..engine.model import Model
from ..engine.nuts import Enough, sample
from ..engine.program import (
    METHODS,
    WHOLE,
    ModelProgram,
    PosteriorDraws,
    Settings,
    columns,
    independent,
    key_of,
    program,
    together,
)
from .result import Fit

MAX_KEY = 2**62


def in_one_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows sorted by all columns, texts first; rows that are equal in all of them cannot be told apart."""
    order = _order(frame)
    return frame if (np.diff(order) == 1).all() else frame.take(order).reset_index(drop=True)


def rows_follow_time(frame: pd.DataFrame, columns: Sequence[ModelColumn]) -> bool:
    """Whether the order of the rows says something: they are steps, and not all have a number."""
    of_steps = any(column.name == "step" for column in columns)
    return of_steps and ("step" not in frame or bool(frame["step"].isna().any()))


def _order(frame: pd.DataFrame) -> NDArray[np.intp]:
    names = sorted(map(str, frame.columns))
    is_number = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in names}
    texts = _combined([_codes(frame[name]) for name in names if not is_number[name]])
    numbers = [frame[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in names if is_number[name]]
    keys = [*reversed(numbers), *reversed(texts)]  # the last is sorted by first
    return np.lexsort(keys) if keys else np.arange(len(frame))


def _codes(values: Any) -> tuple[NDArray[np.int64], int]:
    """Position of every value among the sorted distinct ones, blank first, and how many positions there are."""
    codes, distinct = pd.factorize(values, sort=True)
    return codes.astype(np.int64) + 1, len(distinct) + 1


def _combined(columns: list[tuple[NDArray[np.int64], int]]) -> list[NDArray[np.int64]]:
    """Packs codes into as few integer keys as possible, because sorting costs more than adding."""
    keys: list[tuple[NDArray[np.int64], int]] = []
    for codes, n in columns:
        if keys and keys[-1][1] * n < MAX_KEY:
            before, n_before = keys.pop()
            keys.append((before * n + codes, n_before * n))
        else:
            keys.append((codes, n))
    return [key for key, _ in keys]


Source = pd.DataFrame | Measurements | str | Path | Sequence[str | Path]


@one_blas_thread
def fit(
    data: Source,
    *,
    model: str | Model[Any],
    key: jax.Array,
    method: str | None = None,
    mapping: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    collective: str | CollectiveRun | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
    resume: str | Path | None = None,
    record: Mapping[str, Any] | None = None,
) -> Fit:
    """Fits a model of variability to measurements.

    Args:
        data: a table, one or more files, or measurements that were read before.
        model: "fleet", "steps", "collectives" or another name of `prism_jax.fits.models.MODELS`, or a model.
        key: seed; the same gives the same draws.
        method: "nuts" (exact, slow), "svi" (a normal approximation, weighted and checked), "map" (the same around the mode) or
            "least_squares" (collectives: latency and bandwidth, no sampling); None for what suits the model and the data.
        mapping: canonical column -> name in the data, e.g. {"duration": "time_ms"}.
        units: canonical column -> unit, e.g. {"duration": "ms"}, where no name says it.
        where: column -> value that rows must have.
        collective: "all_reduce", ...: what was run, or that with GPUs and nodes, for logs that do not say it.
        settings: chains, draws and steps.
        progress: called with the share that is done.
        resume: file in which an interrupted fit (nuts) is kept and found again; whoever names it removes it. A model whose
            posterior is sampled in parts is quick, and begins anew.
        record: inputs and versions, kept with the fit.

    Raises:
        DataError: the measurements cannot be read or used.
        FitError: unknown model or method, or data on which the model cannot be fitted.
    """
    chosen: Model[Any] = model_named(model) if isinstance(model, str) else model
    if method is not None and method not in METHODS:
        raise FitError(
            f"method {method!r} is unknown; known are {', '.join(METHODS)}{did_you_mean(method, METHODS, '')}"
        )
    found = measured(data, chosen, mapping=mapping, units=units, where=where, collective=collective)
    started = time.perf_counter()
    with naming(found.sources):
        prepared = chosen.prepare(found.frame)
    method = method or chosen.method_for(prepared)
    if method == "least_squares":
        sampled, judged = _least_squares(chosen, prepared, key, settings or Settings())
    else:
        sampled = posterior(
            chosen,
            prepared,
            method,
            key,
            settings=settings,
            progress=progress,
            resume=None if resume is None else Path(resume),
            enough=lambda drawn: _verdict(chosen, prepared, drawn).cause != "chains",
        )
        judged = _verdict(chosen, prepared, sampled)
    return Fit(
        model=chosen,
        data=prepared,
        sampled=sampled,
        method=method,
        verdict=judged,
        hygiene=found.hygiene,
        elapsed_s=time.perf_counter() - started,
        record=record or {},
    )


def _least_squares(model: Model[Any], data: Any, key: jax.Array, settings: Settings) -> tuple[PosteriorDraws, Verdict]:
    """Draws around the estimate, with those of `complete`, and what the model says of it."""
    first, last = jax.random.split(key)
    draws, judged = model.least_squares(data, settings.n_approximate_draw, first)
    found = independent({name: np.asarray(value) for name, value in draws.items()}, np.nan, np.zeros((1, 0)))
    return _completed(model, data, {WHOLE: replace(found, flat=None)}, last), judged


def _verdict(model: Model[Any], data: Any, sampled: PosteriorDraws) -> Verdict:
    """Verdict on what the model judges: the reported sites, or what it puts in their place."""
    draws = dict(model.judged(data, sampled.draws))
    return verdict(replace(sampled, draws=draws), tuple(draws))


def measured(
    data: Source,
    model: str | Model[Any],
    *,
    mapping: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    collective: str | CollectiveRun | None = None,
) -> Measurements:
    """The checked table that `model` needs of `data`, in an order of its own; arguments and errors as those of `fit`."""
    chosen: Model[Any] = model_named(model) if isinstance(model, str) else model
    columns = chosen.columns
    run = collective if isinstance(collective, CollectiveRun) else CollectiveRun(collective)
    run = _known(run, chosen)
    options: dict[str, Any] = {"mapping": mapping or {}, "units": units or {}, "where": where or {}}
    if isinstance(data, Measurements):
        return data
    if isinstance(data, pd.DataFrame):
        found = tidy(data, columns, **options)
    else:
        paths = [Path(path) for path in ([data] if isinstance(data, (str, Path)) else data)]
        found = read_measurements(paths, columns, **options, collective=run)
    return found if rows_follow_time(found.frame, columns) else replace(found, frame=in_one_order(found.frame))


def _known(run: CollectiveRun, model: Model[Any]) -> CollectiveRun:
    """The run with its collective as files spell it.

    Raises:
        FitError: there is none of that name, or the model is of something else.
    """
    if run == CollectiveRun():
        return run
    if model.name != Collectives.name:
        raise FitError(f"collective {run.collective!r}: a model of {model.name} has none. Leave it out.")
    return replace(run, collective=known_op(run.collective) if run.collective is not None else None)


@one_blas_thread
def posterior(
    model: Model[Any],
    data: Any,
    method: str,
    key: jax.Array,
    *,
    settings: Settings | None = None,
    progress: Progress = silent,
    resume: Path | None = None,
    enough: Enough | None = None,
) -> PosteriorDraws:
    """Draws of the posterior of prepared data, in float64.

    Args:
        enough: whether the draws of nuts will do; see `engine.nuts.sample`.
    """
    with jax.enable_x64(True):
        made = _made(model, data, key, settings)
        return _completed(model, data, _by_parts(made, method, progress, resume, enough), made.last_key)


@one_blas_thread
def posterior_near(
    model: Model[Any],
    data: Any,
    near: np.ndarray | None,
    method: str,
    key: jax.Array,
    *,
    settings: Settings | None = None,
) -> PosteriorDraws:
    """Posterior of part of the data: weighted draws around those of a fit to all, and by the method where they are no good.

    Args:
        near: unconstrained draws [draw, dim] of the fit to all data; None: it has none.
    """
    with jax.enable_x64(True):
        made = _made(model, data, key, settings)
        found = None if near is None else _nearby(made, near)
        return _completed(model, data, found or _by_parts(made, method, silent, None, None), made.last_key)


class _Made(NamedTuple):
    """Programs of the parts of a posterior with a key for each, the settings, and the key of what is drawn afterwards."""

    programs: dict[str, ModelProgram]
    keys: dict[str, jax.Array]
    settings: Settings
    last_key: jax.Array


def _made(model: Model[Any], data: Any, key: jax.Array, settings: Settings | None) -> _Made:
    settings = settings or Settings()
    start_key, draw_key = jax.random.split(key)
    made = {name: program(part, of, key_of(start_key, name)) for name, (part, of) in model.parts(data).items()}
    return _Made(
        made,
        {name: key_of(draw_key, name) for name in made},
        replace(settings, target_accept=max(settings.target_accept, model.target_accept)),
        jax.random.fold_in(draw_key, 1),
    )


def _no_chain_fails(sampled: PosteriorDraws) -> bool:
    """Whether the chains of a part will do: all of its sites count."""
    return verdict(sampled, tuple(sampled.draws)).cause != "chains"


def _by_parts(
    made: _Made, method: str, progress: Progress, resume: Path | None, enough: Enough | None
) -> dict[str, PosteriorDraws]:
    """Draws of every part; only the chains of a posterior in one part are kept in a file and judged by `enough`."""
    found: dict[str, PosteriorDraws] = {}
    for name, one in made.programs.items():
        told = part_of(progress, len(found) / len(made.programs), (len(found) + 1) / len(made.programs))
        kept = (resume, enough) if name == WHOLE else (None, _no_chain_fails)
        found[name] = _by_method(one, method, made.settings, made.keys[name], told, *kept)
    return found


def _nearby(made: _Made, near: np.ndarray) -> dict[str, PosteriorDraws] | None:
    """Weighted draws around those of another fit; None where a part is too large for that, or they are no good."""
    sizes = [one.n_dim for one in made.programs.values()]
    if sum(sizes) != near.shape[1] or max(sizes) > ADAPT_UP_TO:
        return None
    found = {}
    for (name, one), flat in zip(made.programs.items(), columns(near, sizes), strict=True):
        found[name] = weighted(one, around(flat), made.settings.n_approximate_draw, made.keys[name])
        if not found[name].k_hat < GOOD_K:
            return None
    return found


def _by_method(
    made: ModelProgram, method: str, settings: Settings, key: jax.Array, progress: Progress, resume: Path | None,
    enough: Enough | None,
) -> PosteriorDraws:  # fmt: skip
    if method == "nuts":
        return sample(made, settings, key, progress=progress, partial=resume, enough=enough)
    if method == "svi":
        return fit_svi(made, settings, key, progress=progress)
    return fit_map(made, settings, key)


def _completed(model: Model[Any], data: Any, found: Mapping[str, PosteriorDraws], key: jax.Array) -> PosteriorDraws:
    """The draws of all parts, with the sites that a model integrates out in its program, and draws afterwards."""
    sampled = together(model.joined, found)
    if not model.has("complete"):
        return sampled
    shape = sampled.diverging.shape
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in sampled.draws.items()}
    drawn = {name: value.reshape(*shape, *value.shape[1:]) for name, value in model.complete(data, flat, key).items()}
    return replace(sampled, draws={**sampled.draws, **drawn})
