# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Seconds and watts of series that were not measured, from their top rows; the law of a device; scores of what was left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from experiments.power_fit.data import PowerData, from_frame
from experiments.power_fit.population import POPULATION, device_values
from experiments.power_fit.series import DEVICE_SITES, log_ratios
from inference.engine.model import Draws, GroupScore
from prism_jax.system.power import PowerLaw


@dataclass(frozen=True)
class Predicted:
    """Rows of series that were not in a fit.

    Attributes:
        data: the series, with what was measured.
        time, power: predicted over measured, [row].
    """

    data: PowerData
    time: np.ndarray
    power: np.ndarray

    @property
    def energy(self) -> np.ndarray:
        """Predicted over measured, [row]."""
        return self.time * self.power


def law_of(data: PowerData, draws: Draws, device: str) -> PowerLaw:
    """The law of a device of a fit at the posterior median, of any other name the population's.

    Clocks are relative to the one that the device holds at its limit.
    """
    site = _device_sites(data, draws, (device,))
    return PowerLaw(
        *(float(site[name][0]) for name in ("idle", "exponent", "floor")), busy={}, bound={}, source="fitted"
    )


def predicted(data: PowerData, draws: Draws, frame: pd.DataFrame) -> Predicted:
    """Series of `frame`, of which the fit sees the top rows alone; devices may be new, too."""
    new = from_frame(frame)
    new = _same_references(data, new)
    with jax.enable_x64(True):
        site = _device_sites(data, draws, new.devices)
        site |= {name: jnp.asarray(np.median(draws[name])) for name in ("duty", "reach")}
        log_time, log_power = log_ratios(new, site | {"shift": jnp.zeros(len(new.kinds))})
    return Predicted(new, np.exp(np.asarray(log_time) - new.log_time), np.exp(np.asarray(log_power) - new.log_power))


def scores(data: PowerData, draws: Draws, left_out: pd.DataFrame, column: str) -> list[GroupScore]:
    """One score per group: median relative errors, and those of "the limit or the power at the top, and no change of time"."""
    names = left_out[column].astype(str).to_numpy()
    out = []
    for name in np.unique(names):
        found = predicted(data, draws, left_out[names == name])
        time, power = trivial(found.data)
        out.append(
            GroupScore(
                name,
                extra={
                    "time_ape": _median(found.time),
                    "power_ape": _median(found.power),
                    "energy_ape": _median(found.energy),
                    "time_ape_trivial": _median(time),
                    "power_ape_trivial": _median(power),
                    "energy_ape_trivial": _median(time * power),
                },
            )
        )
    return out


def trivial(data: PowerData) -> tuple[np.ndarray, np.ndarray]:
    """Predicted over measured seconds and watts, [row], without a law.

    Under a limit: the same seconds, and the limit, where that is below the power at the top. At a clock: seconds ~ 1 / clock, and
    watts ~ clock cubed.
    """
    is_limit = data.is_limit[data.of]
    time = np.where(is_limit, 1.0, 1.0 / data.control)
    power = np.where(is_limit, np.minimum(1.0, data.control / data.top_power[data.of]), data.control**3)
    return time / np.exp(data.log_time), power / np.exp(data.log_power)


def _device_sites(data: PowerData, draws: Draws, devices: tuple[str, ...]) -> dict[str, jnp.ndarray]:
    """Parameters [device] at the posterior median, in the order of `devices`."""
    known = {name: place for place, name in enumerate(data.devices)}
    deviation, zero = np.median(draws["deviation"], axis=0), np.zeros(len(DEVICE_SITES))
    mean = {name: np.median(draws[name]) for name in POPULATION}
    mean["deviation"] = np.stack([deviation[known[name]] if name in known else zero for name in devices])
    with jax.enable_x64(True):
        return dict(device_values(mean))


def _same_references(data: PowerData, new: PowerData) -> PowerData:
    """With powers as shares of what the fit's are shares of."""
    known = dict(zip(data.devices, data.reference_watts, strict=True))
    factor = np.array([old / known.get(name, old) for name, old in zip(new.devices, new.reference_watts, strict=True)])
    by_series = factor[new.device]
    limits = np.where(new.is_limit, by_series, 1.0)
    return replace(
        new,
        top=new.top * limits,
        top_power=new.top_power * by_series,
        control=new.control * limits[new.of],
        reference_watts=new.reference_watts / factor,
    )


def _median(ratio: np.ndarray) -> float:
    return float(np.median(np.abs(ratio - 1.0)))
