"""Workers of a parameter server and its saturation: speed(k) = ((k v)^-q + (n C)^-q)^(-1/q); see `law.py`.

Every setup (a model on a GPU) has its own v and C; q they share. What a server can take is expected of what an update moves,
parameters there and back, over a network of 10 Gbit/s; where parameters are not told, of four times the most workers met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from experiments.servers_fit.law import ServerLaw
from inference.data.checks import texts_of
from inference.data.columns import ModelColumn
from inference.engine.model import Draws, GroupScore, Model, interval
from inference.engine.program import Scale
from inference.sums import chosen, group_scores
from prism_jax.core.errors import DataError

COLUMNS = (
    ModelColumn("model", ("network", "workload"), required=True, text=True),
    ModelColumn("gpu", ("device",), text=True),
    ModelColumn("workers", ("n_workers",), required=True, strict=True, least=1.0),
    ModelColumn("servers", ("ps", "n_servers", "parameter_servers"), strict=True, least=1.0),
    ModelColumn("steps_per_s", ("speed", "throughput"), required=True, strict=True, positive=True),
    ModelColumn("n_params", ("params", "parameters", "number_of_parameters"), positive=True),
)  # fmt: skip
SPEED_SD = 0.5  # of log v, around the median of steps/s per worker
CAPACITY_SD = 1.0  # of log C, around what is expected
NETWORK_BYTES_PER_S = 1.25e9  # 10 Gbit/s
_BYTES = 8.0  # of a parameter: fp32, there and back
UNTOLD = 4.0  # times the most workers met, where parameters are not told
SHARPNESS = (3.0, 1.5)  # log-normal: 2 to 4.5; the larger the nearer to min(k v, C)
NOISE = Scale(0.03, 2.5)
TAIL = 4.0
MOST_SETUPS = 300


@dataclass(frozen=True)
class ServersData:
    """Medians of repeats.

    Attributes:
        setups: "model gpu", in the order of `of`.
        log_speed: median log steps/s per worker; log_capacity: expected log updates/s of a server; most: most workers, [setup].
        of: setup of each cell; workers, servers: of it; log_rate: median log steps/s of all workers, [cell].
    """

    setups: Annotated[tuple[str, ...], "setup"]
    log_speed: Annotated[np.ndarray, "setup"]
    log_capacity: Annotated[np.ndarray, "setup"]
    most: Annotated[np.ndarray, "setup"]
    of: Annotated[np.ndarray, "cell -> setup"]
    workers: Annotated[np.ndarray, "cell"]
    servers: Annotated[np.ndarray, "cell"]
    log_rate: Annotated[np.ndarray, "cell"]


def from_frame(frame: pd.DataFrame) -> ServersData:
    """Cells of a checked table.

    Raises:
        DataError: there are too many setups.
    """
    table = _with_setups(frame)
    setups = tuple(sorted(set(table["setup"])))
    if len(setups) > MOST_SETUPS:
        raise DataError(f"more than {MOST_SETUPS} setups of model and GPU. Are the columns what they should be?")
    cells = table.groupby(["setup", "workers", "servers"], sort=True)["log_rate"].median().reset_index()
    of = np.array([setups.index(name) for name in cells["setup"]], dtype=np.int64)
    workers, log_rate = cells["workers"].to_numpy(dtype=float), cells["log_rate"].to_numpy(dtype=float)
    places = range(len(setups))
    fewest = [workers[of == place].min() for place in places]
    alone = [(log_rate - np.log(workers))[(of == place) & (workers == fewest[place])].mean() for place in places]
    most = np.array([workers[of == place].max() for place in places])
    n_params = table.groupby("setup")["n_params"].median().to_numpy(dtype=float)
    told = np.log(NETWORK_BYTES_PER_S / _BYTES / np.where(n_params > 0.0, n_params, 1.0))
    untold = np.array(alone) + np.log(UNTOLD * most)
    return ServersData(
        setups=setups,
        log_speed=np.array(alone),
        log_capacity=np.where(n_params > 0.0, told, untold),
        most=most,
        of=of,
        workers=workers,
        servers=cells["servers"].to_numpy(dtype=float),
        log_rate=log_rate,
    )


def _with_setups(frame: pd.DataFrame) -> pd.DataFrame:
    """With the setup, the servers (1 where not told) and the parameters (NaN where not told) of every row."""
    n = len(frame)
    setup = [
        f"{model} {gpu}".strip() for model, gpu in zip(texts_of(frame, "model"), texts_of(frame, "gpu"), strict=True)
    ]
    servers = frame["servers"].fillna(1.0) if "servers" in frame else np.ones(n)
    n_params = frame["n_params"] if "n_params" in frame else np.full(n, np.nan)
    return pd.DataFrame(
        {
            "setup": setup,
            "workers": frame["workers"].to_numpy(dtype=float),
            "servers": np.asarray(servers, dtype=float),
            "log_rate": np.log(frame["steps_per_s"].to_numpy(dtype=float)),
            "n_params": np.asarray(n_params, dtype=float),
        }
    )


def _log_rate(log_speed: Any, log_capacity: Any, sharpness: Any) -> Any:
    """The smooth minimum, of logarithms."""
    return -jnp.logaddexp(-sharpness * log_speed, -sharpness * log_capacity) / sharpness


class Servers(Model[ServersData]):
    """The model by the name "servers"."""

    name = "servers"
    holdout_method = "nuts"  # capacity and sharpness curve around each other
    columns = COLUMNS
    reported = ("speed", "sharpness", "noise")
    no_variability = "a fit of servers describes speeds of clusters, not how steps vary."

    def prepare(self, frame: pd.DataFrame) -> ServersData:
        """Cells."""
        return from_frame(frame)

    def program(self, data: ServersData) -> None:
        """Speed and capacity of every setup, one sharpness, Student's errors."""
        n = len(data.setups)
        speed = numpyro.sample("speed", dist.Normal(jnp.asarray(data.log_speed), SPEED_SD).to_event(1))
        beyond = numpyro.sample("beyond", dist.Normal().expand([n]).to_event(1))
        sharpness = numpyro.sample("sharpness", dist.LogNormal(np.log(SHARPNESS[0]), np.log(SHARPNESS[1])))
        noise = jnp.asarray(numpyro.sample("noise", NOISE.law()))
        capacity = jnp.asarray(data.log_capacity) + CAPACITY_SD * jnp.asarray(beyond)
        offered = jnp.asarray(speed)[data.of] + jnp.log(jnp.asarray(data.workers))
        mean = _log_rate(offered, capacity[data.of] + jnp.log(jnp.asarray(data.servers)), sharpness)
        numpyro.factor("cells", dist.StudentT(TAIL, mean, noise).log_prob(jnp.asarray(data.log_rate)).sum())

    def start(self, data: ServersData) -> dict[str, Any]:
        """What was measured, and what is expected."""
        return {
            "speed": np.asarray(data.log_speed),
            "beyond": np.zeros(len(data.setups)),
            "sharpness": np.asarray(SHARPNESS[0]),
            "noise": np.asarray(NOISE.median),
        }

    def describe(self, data: ServersData, draws: Draws) -> dict[str, Any]:
        """Speed, capacity and the workers that fill a server, of every setup."""
        speed, capacity = np.exp(np.asarray(draws["speed"])), np.exp(_log_capacity(data, draws))
        return {
            "n_cells": len(data.of),
            "setups": {
                name: {
                    "worker_steps_per_s": interval(speed[:, place]),
                    "server_steps_per_s": interval(capacity[:, place]),
                    "n_workers_that_fill_a_server": interval(capacity[:, place] / speed[:, place]),
                }
                for place, name in enumerate(data.setups)
            },
            "sharpness": interval(draws["sharpness"]),
            "noise": interval(draws["noise"]),
        }

    def law(self, data: ServersData, draws: Draws, setup: str = "") -> ServerLaw:
        """Speed of a setup; of the only one where none is named.

        Raises:
            FitError: no such setup, or several and none is named.
        """
        setup = chosen("setup", setup, data.setups)
        place = data.setups.index(setup)
        return ServerLaw(
            worker_per_s=np.exp(np.asarray(draws["speed"])[:, place]),
            server_per_s=np.exp(_log_capacity(data, draws)[:, place]),
            sharpness=np.asarray(draws["sharpness"]),
            workers=int(data.most[place]),
            source=f"{int((data.of == place).sum())} clusters of {setup}",
        )

    def score(
        self, data: ServersData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Errors of clusters of known setups that were left out, beside speed in proportion to the workers."""
        table = _with_setups(left_out).reset_index(drop=True)
        shown = table.assign(steps_per_s=np.exp(table["log_rate"])).assign(**{column: texts_of(left_out, column)})
        rows = shown[shown["setup"].isin(data.setups).to_numpy()].astype({column: str})
        rows = rows.assign(n_workers=table["workers"].loc[rows.index])
        return group_scores(
            rows,
            column,
            "steps_per_s",
            lambda some, rng: _drawn(data, draws, some, rng),
            lambda some: _in_proportion(data, some),
            key,
        )


def _places(data: ServersData, rows: pd.DataFrame) -> np.ndarray:
    return np.array([data.setups.index(name) for name in rows["setup"]], dtype=np.int64)


def _log_capacity(data: ServersData, draws: Draws) -> np.ndarray:
    return data.log_capacity + CAPACITY_SD * np.asarray(draws["beyond"])


def _drawn(data: ServersData, draws: Draws, rows: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    of = _places(data, rows)
    offered = np.asarray(draws["speed"])[:, of] + np.log(rows["n_workers"].to_numpy(dtype=float))
    capacity = _log_capacity(data, draws)[:, of] + np.log(rows["servers"].to_numpy(dtype=float))
    mean = np.asarray(_log_rate(offered, capacity, np.asarray(draws["sharpness"])[:, None]))
    return mean + np.asarray(draws["noise"])[:, None] * rng.standard_t(TAIL, mean.shape)


def _in_proportion(data: ServersData, rows: pd.DataFrame) -> np.ndarray:
    return np.exp(data.log_speed[_places(data, rows)]) * rows["n_workers"].to_numpy(dtype=float)
