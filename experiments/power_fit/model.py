"""Power and seconds against clock and power limit: one law per device, whose parameters come from a population of devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from experiments.power_fit import predict as predict
from experiments.power_fit.data import COLUMNS, PowerData, from_frame
from experiments.power_fit.population import DEVICE_SD, POPULATION, SHIFT_SD, device_values
from experiments.power_fit.series import DEVICE_SITES, log_ratios
from inference.engine.model import Draws, GroupScore, Model, interval

NOISE = (0.02, 2.0)  # of log ratios, median and factor of one standard deviation: repeats of 0.3 to 10%
TAIL = 4.0  # degrees of freedom: single rows are far off (epochs of seconds, limits that do not hold)


class Power(Model[PowerData]):
    """The model by the name "power"."""

    name = "power"
    columns = COLUMNS
    reported = ("duty", "reach", "noise_time", "noise_power")
    no_variability = "a fit of power describes watts and seconds against clocks, not how steps vary."
    target_accept = 0.95

    def prepare(self, frame: pd.DataFrame) -> PowerData:
        """Series relative to their tops."""
        return from_frame(frame)

    def program(self, data: PowerData) -> None:
        """Devices around a population, kinds of series around their device, both non-centred; Student's errors of log ratios."""
        n_device, n_kind = len(data.devices), len(data.kinds)
        site: dict[str, Any] = {name: numpyro.sample(name, dist.Normal(*prior)) for name, prior in POPULATION.items()}
        site["deviation"] = numpyro.sample("deviation", dist.Normal().expand([n_device, len(DEVICE_SITES)]).to_event(2))
        shift = SHIFT_SD * jnp.asarray(numpyro.sample("shift", dist.Normal().expand([n_kind]).to_event(1)))
        duty, reach = (numpyro.sample(name, dist.LogNormal(np.log(median), sd)) for name, median, sd in DUTY_AND_REACH)
        noise = {
            name: jnp.asarray(
                numpyro.sample(name, dist.LogNormal(np.log(NOISE[0]), np.log(NOISE[1])).expand([2]).to_event(1))
            )
            for name in ("noise_time", "noise_power")
        }
        log_time, log_power = log_ratios(data, device_values(site) | {"shift": shift, "duty": duty, "reach": reach})
        sort = jnp.asarray(data.is_limit)[jnp.asarray(data.of)].astype(int)
        for name, mean, measured in (
            ("noise_time", log_time, data.log_time),
            ("noise_power", log_power, data.log_power),
        ):
            density = dist.StudentT(TAIL, mean, noise[name][sort]).log_prob(jnp.asarray(measured))
            numpyro.factor(f"rows_{name}", density.sum())

    def start(self, data: PowerData) -> dict[str, Any]:
        """The centres of the priors."""
        return {
            **{name: np.asarray(mean) for name, (mean, _) in POPULATION.items()},
            "deviation": np.zeros((len(data.devices), len(DEVICE_SITES))),
            "shift": np.zeros(len(data.kinds)),
            **{name: np.asarray(median) for name, median, _ in DUTY_AND_REACH},
            "noise_time": np.full(2, NOISE[0]),
            "noise_power": np.full(2, NOISE[0]),
        }

    def describe(self, data: PowerData, draws: Draws) -> dict[str, Any]:
        """Each device's law, and the population's."""
        sites = jax.vmap(device_values)({name: jnp.asarray(draws[name]) for name in (*POPULATION, "deviation")})
        by_device = {
            device: {name: interval(np.asarray(sites[name])[:, place]) for name in DEVICE_SITES}
            for place, device in enumerate(data.devices)
        }
        return {
            "n_series": len(data.series),
            "n_rows": len(data.of),
            "devices": by_device,
            "duty": interval(draws["duty"]),
            "reach": interval(draws["reach"]),
            "spread_of_devices": dict(zip(DEVICE_SITES, DEVICE_SD, strict=True)),
            **{
                f"{name}_{sort}": interval(np.asarray(draws[name])[:, place])
                for name in ("noise_time", "noise_power")
                for place, sort in enumerate(("clocks", "limits"))
                if bool((data.is_limit == bool(place)).any())
            },
        }

    def score(self, data: PowerData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[GroupScore]:
        """Errors of seconds and watts of groups that were left out, from their top rows."""
        return predict.scores(data, draws, left_out, column)


DUTY_AND_REACH = (("duty", 0.4, 0.4), ("reach", 1.1, 0.1))
