"""Fits on disk: netCDF with the groups of ArviZ (posterior, sample_stats, constant_data), so that its tools open them.

The root's attributes hold, as JSON, what is not an array. Files are untrusted: no pickle, every array is checked against the
model's data class before it is used. xarray is imported only here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Protocol, get_type_hints

import numpy as np

from prism_jax.errors import DataError
from prism_jax.io.write import atomic_path

from .data import CleaningReport
from .engine.diagnostics import Verdict
from .engine.pytree import values
from .engine.sampled import Sampled
from .model import Model
from .models import model_named
from .untrusted import reading

ENGINE = "h5netcdf"
FORMAT = 1
MAX_BYTES = 4 << 30


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
    """
    import xarray

    posterior = {name: (("chain", "draw", *_dims(name, value)), value) for name, value in fit.sampled.draws.items()}
    stats = {"diverging": fit.sampled.diverging.astype(np.int8), "n_steps": fit.sampled.n_leapfrog}
    constants, plain = {}, {}
    for name, value in values(fit.data).items():
        if isinstance(value, np.ndarray):
            constants[name] = (tuple(f"{name}_dim_{i}" for i in range(value.ndim)), _storable(value))
        else:
            plain[name] = value
    tree = xarray.DataTree.from_dict(
        {
            "/posterior": xarray.Dataset(posterior),
            "/sample_stats": xarray.Dataset({name: (("chain", "draw"), value) for name, value in stats.items()}),
            "/constant_data": xarray.Dataset(constants),
        }
    )
    tree.attrs["prism_jax_fit"] = json.dumps(
        {
            "format": FORMAT,
            "model": fit.model.name,
            "method": fit.method,
            "k_hat": None if np.isnan(fit.sampled.k_hat) else float(fit.sampled.k_hat),
            "verdict": fit.verdict.as_dict(),
            "hygiene": fit.hygiene.as_dict(),
            "elapsed_s": fit.elapsed_s,
            "record": dict(fit.record),
            "data": plain,
        },
        allow_nan=True,
        default=_plain,
    )
    with atomic_path(path) as temporary:
        tree.to_netcdf(temporary, engine=ENGINE)


def read(path: str | Path) -> dict[str, Any]:
    """The fields of the fit in a file that `save` wrote.

    Raises:
        DataError: there is none, or it is damaged or of another kind.
    """
    path = Path(path)
    with reading(path, "fit", "fit MODEL FILE", MAX_BYTES):
        return _read(path)


def _read(path: Path) -> dict[str, Any]:
    import xarray

    _walk(path)
    with xarray.open_datatree(path, engine=ENGINE) as tree:
        about = json.loads(tree.attrs["prism_jax_fit"])
        if about["format"] != FORMAT:
            raise DataError(f"{path}: format {about['format']}, but this version reads {FORMAT}. Fit again.")
        arrays = {str(name): np.asarray(value.values) for name, value in tree["constant_data"].data_vars.items()}
        draws = {str(name): np.asarray(value.values) for name, value in tree["posterior"].data_vars.items()}
        stats = {str(name): np.asarray(value.values) for name, value in tree["sample_stats"].data_vars.items()}
    model = model_named(about["model"])
    k_hat = about["k_hat"]
    return {
        "model": model,
        "data": _data(path, model, arrays, about["data"]),
        "sampled": Sampled(
            draws, stats["diverging"].astype(bool), stats["n_steps"], np.nan if k_hat is None else k_hat
        ),
        "method": about["method"],
        "verdict": _verdict(about["verdict"]),
        "hygiene": CleaningReport(**{**about["hygiene"], "notes": tuple(about["hygiene"]["notes"])}),
        "elapsed_s": about["elapsed_s"],
        "record": about["record"],
    }


def _walk(path: Path) -> None:
    """Meets damage with h5py, which reports it once: half-opened files of h5netcdf print a second error when collected."""
    import h5py

    with h5py.File(path, "r") as content:
        if "prism_jax_fit" not in content.attrs:
            raise DataError(f"{path}: a netCDF file, but not one of `prism-jax fit`")
        content.visititems(lambda _name, _item: None)


def _verdict(plain: Mapping[str, Any]) -> Verdict:
    """None stands for NaN."""
    given: dict[str, Any] = {name: np.nan if value is None else value for name, value in plain.items()}
    return Verdict(**given)


def _data(path: Path, model: Any, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> Any:
    """The model's data class filled; its type is what `prepare` says it returns."""
    kind = get_type_hints(model.prepare)["return"]
    given: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in arrays:
            value = arrays[field.name]
            given[field.name] = value.astype(str) if value.dtype.kind in "OSU" else value
        elif field.name in plain:
            value = plain[field.name]
            given[field.name] = _tupled(value)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise DataError(f"{path}: {field.name} of the model's data is missing. Fit again.")
    return kind(**given)


def _tupled(value: Any) -> Any:
    """Lists, which is what JSON makes of tuples, as tuples."""
    return tuple([_tupled(item) for item in value]) if isinstance(value, list) else value


def _dims(name: str, value: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{name}_dim_{i}" for i in range(value.ndim - 2))


def _storable(value: np.ndarray) -> np.ndarray:
    """Text of a fixed width, which has a type even where there is none of it."""
    return value.astype(str) if value.dtype.kind in "OSU" else value


def _plain(value: Any) -> Any:
    """NumPy scalars in JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no part of a fit's data")
