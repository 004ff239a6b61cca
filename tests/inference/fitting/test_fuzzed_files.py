"""Whatever becomes of a stored fit or calibration, reading and using it ends well or in one error of the file."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from inference import Settings
from inference.cost_model import store as calibrations
from inference.fitting.fit import posterior
from inference.fitting.result import Fit
from prism_jax.calibration.calibration import shipped
from prism_jax.core.errors import PrismError
from prism_jax.core.report import from_plain, to_plain
from prism_jax.fits.models import model_named
from prism_jax.fits.report import CleaningReport, KeptFitReport, Verdict
from tests.inference.fitting.test_schema import TABLES
from tests.support.files.mutations import mutated

N_FAST, N_SLOW = 100, 4_000


def stored_fit(name: str, file: Path) -> None:
    model = model_named(name)
    data = model.prepare(TABLES[name]())
    sampled = posterior(model, data, "map", jax.random.key(0), settings=Settings(n_approximate_draw=50))
    good = Verdict(True, "good: all", 1.0, 100.0, "x", 0, float("nan"))
    Fit(model, data, sampled, "map", good, CleaningReport(3, 3), 1.0).save(file)


def use_fit(file: Path) -> None:
    fit = Fit.load(file)
    checks = fit.check()
    found = {**fit.summary(), "checks": None if checks is None else checks.as_dict()}
    from_plain(KeptFitReport, to_plain(found)).lines()
    fit.measured_level()
    if fit.describes_variability:
        fit.to_variability(force=True)


def use_calibration(file: Path) -> None:
    calibrations.is_calibration(file)
    calibrations.load(file).as_dict()


def all_end_well(whole: Path, use: Callable[[Path], Any], seeds: range) -> None:
    file, n_refused = whole.with_name("mutated.npz"), 0
    for seed in seeds:
        mutated(whole, file, seed)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of values that no limit is stated for
                use(file)
        except PrismError as error:
            n_refused += 1
            assert str(error).startswith(f"{file}: "), (seed, error)
            assert "\n" not in str(error), seed
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert n_refused > len(seeds) / 2


def test_calibrations(tmp_path: Path):
    calibrations.save(shipped(), tmp_path / "whole.npz")
    all_end_well(tmp_path / "whole.npz", use_calibration, range(N_FAST))


def test_fits(tmp_path: Path):
    stored_fit("kernels", tmp_path / "whole.npz")
    all_end_well(tmp_path / "whole.npz", use_fit, range(N_FAST))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calibration", *TABLES])
def test_many(name: str, tmp_path: Path):
    whole = tmp_path / "whole.npz"
    if name == "calibration":
        calibrations.save(shipped(), whole)
    else:
        stored_fit(name, whole)
    all_end_well(whole, use_calibration if name == "calibration" else use_fit, range(N_FAST, N_SLOW))
