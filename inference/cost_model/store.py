"""Calibrations of the cost model on disk: netCDF with the group `posterior` of ArviZ, one variable per knob [chain, draw].

Values are on the link's scale (`cost/calibration.py`): logarithms of factors and of seconds, the logit of a share. Terms below
the level of all have a third axis, their members. The root's attribute `prism_jax_calibration` holds, as JSON, what is no array.
Files are untrusted: no pickle, and every array is checked before it is used. xarray is imported only here and in `store.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prism_jax.calibration.calibration import KNOBS, Calibration, Term
from prism_jax.calibration.key import LEVELS
from prism_jax.calibration.residual_gp import MOST, ResidualGP
from prism_jax.errors import DataError
from prism_jax.io.write import atomic_path

from ..untrusted import reading

ENGINE = "h5netcdf"
ATTRIBUTE = "prism_jax_calibration"
FORMAT = 3
MAX_BYTES = 1 << 28
SPREADS = ("site_sd", "misfit", "misfit_sd")
NEARBY = LEFT, PARTS, TRUST = "nearby_left", "nearby_parts", "nearby_trust"  # of the measured runs
LARGEST = 100.0  # of a value on the link's scale: beyond, exponentials overflow in single precision


def save(calibration: Calibration, path: str | Path) -> None:
    """Writes `calibration`, whole or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    import xarray

    posterior: dict[str, Any] = {name: _drawn(getattr(calibration, name)) for name in SPREADS}
    for term in calibration.terms:
        name = _variable(term.knob, term.level)
        whole = (("chain", "draw"), term.value[None, :, 0])
        posterior[name] = whole if term.names == ("all",) else (("chain", "draw", f"{name}_dim_0"), term.value[None])
    if calibration.site is not None:
        posterior["site"] = _drawn(calibration.site)
    if calibration.nearby is not None:
        posterior[LEFT] = (("run",), calibration.nearby.left)
        posterior[PARTS] = (("run", "knob"), calibration.nearby.parts)
        posterior[TRUST] = (("run",), calibration.nearby.trust)
    tree = xarray.DataTree.from_dict({"/posterior": xarray.Dataset(posterior)})
    tree.attrs[ATTRIBUTE] = json.dumps(
        {
            "format": FORMAT,
            "centre": dict(calibration.centre),
            "terms": [{"knob": t.knob, "level": t.level, "sd": t.sd, "names": t.names} for t in calibration.terms],
            "expert_misfit": calibration.expert_misfit,
            "record": dict(calibration.record or {}),
        }
    )
    with atomic_path(path) as temporary:
        tree.to_netcdf(temporary, engine=ENGINE)


def load(path: str | Path) -> Calibration:
    """The calibration in a file that `save` wrote.

    Raises:
        DataError: there is none, or it is damaged or of another kind.
    """
    path = Path(path)
    with reading(path, "calibration", "calibrate RUNS.csv", MAX_BYTES):
        return _calibration(path, *_read(path))


def is_calibration(path: str | Path) -> bool:
    """Whether a file says of itself that it is a calibration; False where it cannot be read."""
    import h5py

    try:
        with h5py.File(path, "r") as content:
            return ATTRIBUTE in content.attrs
    except OSError:
        return False


def _read(path: Path) -> tuple[Mapping[str, Any], dict[str, np.ndarray]]:
    """Attributes and arrays, by h5py alone: it reports damage once, and reads no code."""
    import h5py

    with h5py.File(path, "r") as content:
        if ATTRIBUTE not in content.attrs:
            raise DataError(f"{path}: a netCDF file, but not one of `prism-jax calibrate`")
        about = json.loads(str(content.attrs[ATTRIBUTE]))
        if about["format"] != FORMAT:
            raise DataError(f"{path}: format {about['format']}, but this version reads {FORMAT}. Calibrate again.")
        group = content["posterior"]
        if not isinstance(group, h5py.Group):
            raise DataError(f"{path}: no group of draws in this calibration. Calibrate again.")
        drawn = [_variable(term["knob"], term["level"]) for term in about["terms"]]
        wanted = [*SPREADS, "site", *NEARBY, *drawn]
        arrays = {name: np.asarray(group[name], dtype=float) for name in wanted if name in group}
    return about, arrays


def _calibration(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Calibration:
    def checked(name: str, axes: int, low: float = -LARGEST) -> np.ndarray:
        value = arrays[name]
        if value.ndim != axes or value.shape[:2] != (1, n_draw) or not ((value >= low) & (value <= LARGEST)).all():
            raise DataError(f"{path}: {name} of the calibration is damaged. Calibrate again.")
        return value[0]

    n_draw = arrays["misfit"].shape[-1]
    if n_draw == 0:
        raise DataError(f"{path}: no draws. Calibrate again.")
    centre = {knob: float(about["centre"][knob]) for knob in KNOBS}
    if not all(abs(value) <= LARGEST for value in centre.values()):
        raise DataError(f"{path}: the centre of the calibration is damaged. Calibrate again.")
    terms = []
    for plain in about["terms"]:
        knob, level, names, sd = plain["knob"], plain["level"], tuple(plain["names"]), float(plain["sd"])
        if knob not in KNOBS or level not in LEVELS or not 0.0 <= sd <= LARGEST:
            raise DataError(f"{path}: no knob {knob} at level {level}, of deviation {sd:g}. Calibrate again.")
        name = _variable(knob, level)
        value = checked(name, 2)[:, None] if names == ("all",) else checked(name, 3)
        if value.shape[1] != len(names):
            raise DataError(f"{path}: {name} of the calibration is damaged. Calibrate again.")
        terms.append(Term(knob, level, sd, tuple(str(each) for each in names), value))
    return Calibration(
        centre=centre,
        terms=tuple(terms),
        site_sd=checked("site_sd", 2, 0.0),
        misfit=checked("misfit", 2, 0.0),
        misfit_sd=checked("misfit_sd", 2, 0.0),
        expert_misfit=_expert_misfit(path, about),
        site=checked("site", 2) if "site" in arrays else None,
        nearby=_nearby(path, arrays) if LEFT in arrays else None,
        record=dict(about["record"]),
    )


def _nearby(path: Path, arrays: Mapping[str, np.ndarray]) -> ResidualGP:
    left, parts, trust = arrays[LEFT], arrays[PARTS], arrays[TRUST]
    n_run = left.size
    fits = 0 < n_run <= MOST and left.shape == trust.shape == (n_run,) and parts.shape == (n_run, len(KNOBS))
    bounded = all((np.abs(value) <= LARGEST).all() for value in (left, parts))
    if not fits or not bounded or not ((trust > 0.0) & (trust <= 1.0)).all():
        raise DataError(f"{path}: the measured runs of the calibration are damaged. Calibrate again.")
    return ResidualGP(parts, left, trust)


def _expert_misfit(path: Path, about: Mapping[str, Any]) -> float:
    found = float(about["expert_misfit"])
    if not 0.0 <= found <= LARGEST:
        raise DataError(f"{path}: expert_misfit = {found:g} of the calibration is damaged. Calibrate again.")
    return found


def _variable(knob: str, level: str) -> str:
    return knob if level == "all" else f"{knob}_by_{level.replace(' ', '_')}"


def _drawn(value: np.ndarray) -> tuple[tuple[str, str], np.ndarray]:
    return ("chain", "draw"), np.asarray(value)[None]
