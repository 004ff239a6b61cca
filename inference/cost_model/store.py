"""Calibrations of the cost model on disk: archives of arrays, `posterior/KNOB` [chain, draw] as ArviZ has them.

Values are on the link's scale (`calibration/calibration.py`): logarithms of factors and of seconds, the logit of a share. Terms
below the level of all have a third axis, their members. Files are untrusted: every array is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prism_jax.calibration.calibration import KNOBS, MISFIT, Calibration, Term
from prism_jax.calibration.evidence import width_law
from prism_jax.calibration.key import LEVELS, STEP
from prism_jax.calibration.surrogate import MOST, ResidualGP
from prism_jax.core.archive import Archive, kind_of, opened, write_archive
from prism_jax.core.errors import DataError

KIND = "calibration"
FORMAT = 4  # 3 was netCDF
REMEDY = "Calibrate again: `prism-jax calibrate RUNS.csv -o {}`."
GROUP = "posterior/"
MAX_BYTES = 1 << 28
SPREADS = ("site_sd", "misfit", "misfit_sd")
NEARBY = LEFT, PARTS, TRUST = "nearby_left", "nearby_parts", "nearby_trust"  # of the measured runs
LARGEST = 100.0  # of a value on the link's scale: beyond, exponentials overflow in single precision


def save(calibration: Calibration, path: str | Path) -> None:
    """Writes `calibration`, whole or not at all.

    Raises:
        DataError: the file cannot be written.
        OSError: the disk is full.
    """
    posterior = {name: np.asarray(getattr(calibration, name))[None] for name in SPREADS}
    for term in calibration.terms:
        whole = term.names == ("all",)
        posterior[_variable(term.knob, term.level)] = term.value[None, :, 0] if whole else term.value[None]
    if calibration.site is not None:
        posterior["site"] = np.asarray(calibration.site)[None]
    if calibration.nearby is not None:
        own = calibration.nearby
        posterior |= {LEFT: own.left, PARTS: own.parts, TRUST: own.trust}
    about = {
        "format": FORMAT,
        "centre": dict(calibration.centre),
        "terms": [{"knob": t.knob, "level": t.level, "sd": t.sd, "names": t.names} for t in calibration.terms],
        "expert_misfit": calibration.expert_misfit,
        "record": dict(calibration.record or {}),
    }
    write_archive(path, KIND, about, {GROUP + name: value for name, value in posterior.items()})


def load(path: str | Path) -> Calibration:
    """The calibration in a file that `save` wrote.

    Raises:
        DataError: there is none, or it is damaged or of another kind.
    """
    with opened(path, KIND, REMEDY.format(Path(path).name), MAX_BYTES) as archive:
        return _calibration(archive.about, _arrays(archive))


def is_calibration(path: str | Path) -> bool:
    """Whether a file says of itself that it is a calibration; False where it cannot be read."""
    return kind_of(path) == KIND


def _arrays(archive: Archive) -> dict[str, np.ndarray]:
    """Arrays of the names that a calibration with these terms has, as floats."""
    if archive.about.get("format") != FORMAT:
        raise DataError(f"format {archive.about.get('format')!r}, but this version reads {FORMAT}.")
    drawn = [_variable(term["knob"], term["level"]) for term in archive.about["terms"]]
    wanted = {GROUP + name: name for name in (*SPREADS, "site", *NEARBY, *drawn)}
    for name in archive.headers.keys() - wanted.keys():
        raise DataError(f"{name[:40]!r} is not an array of a calibration.")
    return {wanted[name]: np.asarray(archive.load(name), dtype=float) for name in archive.headers}


def _calibration(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Calibration:
    def checked(name: str, axes: int, low: float = -LARGEST) -> np.ndarray:
        value = arrays[name]
        if value.ndim != axes or value.shape[:2] != (1, n_draw) or not ((value >= low) & (value <= LARGEST)).all():
            raise DataError(f"{name} of the calibration is damaged.")
        return value[0]

    n_draw = arrays["misfit"].shape[-1]
    if n_draw == 0:
        raise DataError("no draws.")
    centre = {knob: float(about["centre"][knob]) for knob in KNOBS}
    if not all(abs(value) <= LARGEST for value in centre.values()):
        raise DataError("the centre of the calibration is damaged.")
    terms = []
    for plain in about["terms"]:
        knob, level, names, sd = plain["knob"], plain["level"], tuple(plain["names"]), float(plain["sd"])
        if knob not in (*KNOBS, MISFIT, STEP) or level not in LEVELS or not 0.0 <= sd <= LARGEST:
            raise DataError(f"no knob {knob} at level {level}, of deviation {sd:g}.")
        name = _variable(knob, level)
        value = checked(name, 2)[:, None] if names == ("all",) else checked(name, 3)
        if value.shape[1] != len(names):
            raise DataError(f"{name} of the calibration is damaged.")
        terms.append(Term(knob, level, sd, tuple(str(each) for each in names), value))
    return Calibration(
        centre=centre,
        terms=tuple(terms),
        site_sd=checked("site_sd", 2, 0.0),
        misfit=checked("misfit", 2, 0.0),
        misfit_sd=checked("misfit_sd", 2, 0.0),
        expert_misfit=_expert_misfit(about),
        site=checked("site", 2) if "site" in arrays else None,
        nearby=_nearby(arrays) if LEFT in arrays else None,
        record=dict(about["record"]),
        width=None if "site" in arrays else width_law(),  # of what ships, where that stands
    )


def _nearby(arrays: Mapping[str, np.ndarray]) -> ResidualGP:
    left, parts, trust = arrays[LEFT], arrays[PARTS], arrays[TRUST]
    n_run = left.size
    fits = 0 < n_run <= MOST and left.shape == trust.shape == (n_run,) and parts.shape == (n_run, len(KNOBS))
    bounded = all((np.abs(value) <= LARGEST).all() for value in (left, parts))
    if not fits or not bounded or not ((trust > 0.0) & (trust <= 1.0)).all():
        raise DataError("the measured runs of the calibration are damaged.")
    return ResidualGP(parts, left, trust)


def _expert_misfit(about: Mapping[str, Any]) -> float:
    found = float(about["expert_misfit"])
    if not 0.0 <= found <= LARGEST:
        raise DataError(f"expert_misfit = {found:g} of the calibration is damaged.")
    return found


def _variable(knob: str, level: str) -> str:
    return knob if level == "all" else f"{knob}_by_{level.replace(' ', '_')}"
