"""Fits on disk: archives of arrays (`_core/archive.py`) with the groups of ArviZ in their names.

`posterior/SITE` and `sample_stats/NAME` are [chain, draw, ...], `constant_data/FIELD` are the arrays of the model's data. Files
are untrusted: all that is read is checked against the model's data class and its axes (`schema.py`) before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, get_type_hints

import numpy as np

from prism_jax._core import archive as archives
from prism_jax.errors import DataError
from prism_jax.report.codec import to_plain
from prism_jax.report.types.fit import Verdict

from .data import CleaningReport
from .engine.pytree import values
from .engine.sampled import Sampled
from .model import Model
from .models import model_named
from .schema import built

KIND = "fit"
FORMAT = 2  # 1 was netCDF
DRAWN, STATS, DATA = "posterior/", "sample_stats/", "constant_data/"
RECORD = {"versions": dict, "inputs": dict, "git_revision": str | None, "seed": int | None}
DIVERGING, STEPS = f"{STATS}diverging", f"{STATS}n_steps"


class Storable(Protocol):
    """What is kept of a fit; see `result.Fit`."""

    @property
    def model(self) -> Model[Any]: ...
    @property
    def data(self) -> Any: ...
    @property
    def sampled(self) -> Sampled: ...
    @property
    def method(self) -> str: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def hygiene(self) -> CleaningReport: ...
    @property
    def elapsed_s(self) -> float: ...
    @property
    def record(self) -> Mapping[str, Any]: ...


def save(fit: Storable, path: str | Path) -> None:
    """Writes `fit`, whole or not at all.

    Raises:
        DataError: the file cannot be written.
        OSError: the disk is full.
    """
    arrays = {DRAWN + name: value for name, value in fit.sampled.draws.items()}
    arrays |= {DIVERGING: fit.sampled.diverging, STEPS: fit.sampled.n_leapfrog}
    plain = {}
    for name, value in values(fit.data).items():
        if isinstance(value, np.ndarray):
            arrays[DATA + name] = value.astype(str) if value.dtype.kind in "OS" else value
        else:
            plain[name] = value
    about = {
        "format": FORMAT,
        "model": fit.model.name,
        "method": fit.method,
        "k_hat": None if np.isnan(fit.sampled.k_hat) else float(fit.sampled.k_hat),
        "verdict": {name: None if value != value else value for name, value in asdict(fit.verdict).items()},
        "hygiene": to_plain(fit.hygiene),
        "elapsed_s": fit.elapsed_s,
        "record": dict(fit.record),
        "data": plain,
    }
    archives.write_archive(path, KIND, about, arrays)


def read(path: str | Path) -> dict[str, Any]:
    """The fields of the fit in a file that `save` wrote.

    Raises:
        DataError: there is none, or it is damaged or of another kind.
    """
    with archives.opened(path, KIND, _remedy(path)) as archive:
        about = archive.about
        if about["format"] != FORMAT:
            raise DataError(f"format {about['format']}, but this version reads {FORMAT}.")
        model = model_named(about["model"])
        return {
            "model": model,
            "data": _data(model, archive),
            "sampled": _sampled(archive),
            "method": _checked(about, "method", str),
            "verdict": built(Verdict, _with_nan(about["verdict"])),
            "hygiene": built(CleaningReport, about["hygiene"]),
            "elapsed_s": float(about["elapsed_s"]),
            "record": _record(_checked(about, "record", dict)),
        }


def unusable(path: Path, error: Exception) -> DataError:
    """The error of a file whose content is well formed, and of which its model can make nothing."""
    return archives.unreadable(path, KIND, error, _remedy(path))


def _remedy(path: str | Path) -> str:
    return f"Fit again: `prism-jax fit MODEL FILE -o {Path(path).name}`."


def _sampled(archive: archives.Archive) -> Sampled:
    """Draws, all of the same chains, and finite."""
    headers, k_hat = archive.headers, archive.about["k_hat"]
    shape = headers[DIVERGING].shape
    drawn = [name for name in headers if name.startswith(DRAWN)]
    kinds = {DIVERGING: "b", STEPS: "iu", **dict.fromkeys(drawn, "fiu")}
    for name, kind in kinds.items():
        own = headers[name]
        if own.kind not in kind or len(shape) != 2 or own.shape[:2] != shape or 0 in own.shape:
            raise DataError(f"{name} is no array of [chain, draw].")
    if not drawn:
        raise DataError("no draws.")
    draws = {name.removeprefix(DRAWN): archive.load(name) for name in drawn}
    for name, value in draws.items():
        if not np.isfinite(value).all():
            raise DataError(f"draws of {name} are not finite.")
    return Sampled(draws, archive.load(DIVERGING), archive.load(STEPS), np.nan if k_hat is None else float(k_hat))


def _data(model: Any, archive: archives.Archive) -> Any:
    """The model's data class filled; its type is what `prepare` says it returns."""
    arrays = {name.removeprefix(DATA): archive.load(name) for name in archive.headers if name.startswith(DATA)}
    return built(get_type_hints(model.prepare)["return"], {**_checked(archive.about, "data", dict), **arrays})


def _record(plain: dict[str, Any]) -> dict[str, Any]:
    """What `io.write.run_record` made, or a caller in Python.

    Raises:
        DataError: a part of it is of another type.
    """
    for name, kinds in RECORD.items():
        if name in plain and not isinstance(plain[name], kinds):
            raise DataError(f"{name} of the record is of another type.")
    return plain


def _with_nan(plain: Mapping[str, Any]) -> dict[str, Any]:
    """None stands for NaN."""
    return {name: np.nan if value is None else value for name, value in plain.items()}


def _checked(about: Mapping[str, Any], name: str, kind: type) -> Any:
    """What `about` says of `name`.

    Raises:
        DataError: it is of another type.
    """
    if not isinstance(about[name], kind):
        raise DataError(f"{name} is of another type.")
    return about[name]
