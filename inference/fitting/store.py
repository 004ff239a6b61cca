"""Fits on disk: archives of arrays (`prism_jax/core/archive.py`) with the groups of ArviZ in their names.

`posterior/SITE` and `sample_stats/NAME` are [chain, draw, ...], `constant_data/FIELD` are the arrays of the model's data. Files
are untrusted: all that is read is checked against the model's data class before it is used, the type of every field, the axes of
every array, and what its indices point at.

Fields with axes say so in their annotation, `Annotated[np.ndarray, "gpu covariate"]`: axes of one name are equally long, and a
number is a length; behind "->" is the axis on which the integers of a field are places ("cell -> gpu"; "or -1": or nowhere). A
tuple has one axis.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from prism_jax.core import archive as archives
from prism_jax.core.errors import DataError
from prism_jax.core.report import to_plain
from prism_jax.fits.models import model_named
from prism_jax.fits.report import CleaningReport, Verdict

from ..engine.program import PosteriorDraws, values

T = TypeVar("T")
LARGEST = 1 << 62
NUMBERS = "biuf"  # kinds of arrays of which the hint says no dtype


def built(kind: type[T], given: Mapping[str, Any]) -> T:
    """The dataclass `kind` of those values; lists stand for tuples, and defaults for what is absent.

    Raises:
        DataError: a field is missing, unknown, of another type or of another shape.
    """
    hints = get_type_hints(kind)
    known = {item.name: item for item in fields(kind)}  # pyright: ignore[reportArgumentType]
    for name in given.keys() - known.keys():
        raise DataError(f"{name[:40]!r} is not a field of {kind.__name__}.")
    found = {}
    for name, item in known.items():
        if name in given:
            found[name] = _of_type(name, hints[name], given[name])
        elif item.default is MISSING and item.default_factory is MISSING:
            raise DataError(f"{name} of {kind.__name__} is missing.")
    value = kind(**found)
    check_axes(value)
    return value


def axes_of(kind: type) -> dict[str, str]:
    """Field -> axes, of the fields of a dataclass that state some."""
    hints = get_type_hints(kind, include_extras=True)
    said = {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {
        name: text for name, text in said.items() if isinstance(text, str)
    }  # reports say other things of their fields


def check_axes(value: Any) -> None:
    """Checks that the arrays of a dataclass have the axes that its annotations say.

    Raises:
        DataError: an array has other axes, or an index points beyond its axis.
    """
    lengths: dict[str, int] = {}
    places: list[tuple[str, str]] = []
    for name, text in axes_of(type(value)).items():
        axes, _, onto = text.partition(" -> ")
        _check_lengths(name, axes.split(), np.shape(_outer(getattr(value, name))), lengths)
        places += [(name, onto)] if onto else []
    for name, onto in places:
        axis, _, nowhere = onto.partition(" or ")
        length, place = int(axis) if axis.isdigit() else lengths[axis], getattr(value, name)
        if place.dtype.kind not in "iu" or ((place < int(nowhere or 0)) | (place >= length)).any():
            raise DataError(f"{name} points at what is not there.")


def _check_lengths(name: str, axes: list[str], shape: tuple[int, ...], lengths: dict[str, int]) -> None:
    """Whether a field has those axes; notes lengths of axes not met before."""
    if len(shape) != len(axes):
        raise DataError(f"{name} has {len(shape)} axes, but it must have {len(axes)}.")
    for axis, length in zip(axes, shape, strict=True):
        if lengths.setdefault(axis, int(axis) if axis.isdigit() else length) != length:
            raise DataError(f"{name} has {length:,} values, but there are {lengths[axis]:,} ({axis}).")


def _outer(value: Any) -> Any:
    """Wraps a tuple, so that there is one place per item."""
    return np.empty(len(value), bool) if isinstance(value, tuple) else value


def _of_type(name: str, hint: Any, value: Any) -> Any:
    """The value, lists in it as tuples.

    Raises:
        DataError: it is of another type.
    """
    found = _tupled(value)
    if not _is(hint, found):
        raise DataError(f"{name} is of another type.")
    return found


def _tupled(value: Any) -> Any:
    """Lists, which is what JSON makes of tuples, as tuples."""
    return tuple([_tupled(item) for item in value]) if isinstance(value, list) else value


def _is(hint: Any, value: Any) -> bool:
    """Whether `value` is of a type that the dataclasses of fits are made of."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is(part, value) for part in parts)
    if hint in (np.ndarray, Any) or origin in (np.ndarray, NDArray):  # `Floats` is `Any` while a program runs
        return isinstance(value, np.ndarray) and value.dtype.kind in (_kind(parts) or NUMBERS)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is(parts[0], item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_is(parts[1], item) for item in value.values())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    return isinstance(value, hint)


def _kind(parts: tuple[Any, ...]) -> str:
    """Kind of the numbers in `NDArray[np.float64]`, however NumPy spells it and of any width; empty where none is stated."""
    for part in parts:
        if isinstance(part, type) and issubclass(part, np.generic):
            return np.dtype(part).kind
        if found := _kind(get_args(part)):
            return found
    return ""


KIND = "fit"
FORMAT = 2  # 1 was netCDF
DRAWN, STATS, DATA = "posterior/", "sample_stats/", "constant_data/"
RECORD = {"versions": dict, "inputs": dict, "git_revision": str | None, "seed": int | None}
DIVERGING, STEPS = f"{STATS}diverging", f"{STATS}n_steps"


def save(stored: Mapping[str, Any], path: str | Path) -> None:
    """Writes the fields of a fit, whole or not at all.

    Raises:
        DataError: the file cannot be written.
        OSError: the disk is full.
    """
    sampled: PosteriorDraws = stored["sampled"]
    arrays = {DRAWN + name: value for name, value in sampled.draws.items()}
    arrays |= {DIVERGING: sampled.diverging, STEPS: sampled.n_leapfrog}
    plain = {}
    for name, value in values(stored["data"]).items():
        if isinstance(value, np.ndarray):
            arrays[DATA + name] = value.astype(str) if value.dtype.kind in "OS" else value
        else:
            plain[name] = value
    about = {
        "format": FORMAT,
        "model": stored["model"].name,
        "method": stored["method"],
        "k_hat": None if np.isnan(sampled.k_hat) else float(sampled.k_hat),
        "verdict": {name: None if value != value else value for name, value in asdict(stored["verdict"]).items()},
        "hygiene": to_plain(stored["hygiene"]),
        "elapsed_s": stored["elapsed_s"],
        "record": dict(stored["record"]),
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
        if about.get("format") != FORMAT:
            raise DataError(f"format {about.get('format')!r}, but this version reads {FORMAT}.")
        model = model_named(about["model"])
        return {
            "model": model,
            "data": _data(model, archive),
            "sampled": _sampled(archive),
            "method": _of_type("method", str, about["method"]),
            "verdict": built(Verdict, {name: np.nan if x is None else x for name, x in about["verdict"].items()}),
            "hygiene": built(CleaningReport, about["hygiene"]),
            "elapsed_s": float(about["elapsed_s"]),
            "record": _record(_of_type("record", dict, about["record"])),
        }


def unusable(path: Path, error: Exception) -> DataError:
    """The error of a file whose content is well formed, and of which its model can make nothing."""
    return archives.unreadable(path, KIND, error, _remedy(path))


def _remedy(path: str | Path) -> str:
    return f"Fit again: `prism-jax fit MODEL FILE -o {Path(path).name}`."


def _sampled(archive: archives.Archive) -> PosteriorDraws:
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
    return PosteriorDraws(
        draws, archive.load(DIVERGING), archive.load(STEPS), np.nan if k_hat is None else float(k_hat)
    )


def _data(model: Any, archive: archives.Archive) -> Any:
    """The model's data class filled; its type is what `prepare` says it returns."""
    arrays = {name.removeprefix(DATA): archive.load(name) for name in archive.headers if name.startswith(DATA)}
    return built(get_type_hints(model.prepare)["return"], {**_of_type("data", dict, archive.about["data"]), **arrays})


def _record(plain: dict[str, Any]) -> dict[str, Any]:
    """Checks a record that `io.write.run_record` or a caller in Python made."""
    for name in (name for name in RECORD if name in plain):
        _of_type(f"{name} of the record", RECORD[name], plain[name])
    return plain
