"""A ladder of batch sizes on one instance: t(b) = a + c b, a time that no batch is small enough to save, and seconds per sample.

Three to five rungs of a model that nobody described tell what a planner needs of it: how long a step takes at any batch. In the
program a ladder has its seconds at its largest batch, and the share of them that is the floor.
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

from prism_jax.cloud.laws import LadderLaw
from prism_jax.core.errors import DataError

from .data.checks import texts_of
from .data.columns import ModelColumn
from .engine.model import Draws, GroupScore, Model, interval
from .engine.program import Scale
from .sums import chosen, group_scores

# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)


NUMBER: dict[str, bool] = {"required": True, "strict": True, "positive": True}
COLUMNS = (
    ModelColumn("batch", ("batch_size", "micro_batch", "local_bsz"), **NUMBER),
    ModelColumn("step_s", ("duration_s", "step_time"), **NUMBER),
    ModelColumn("setup", ("instance", "gpu", "device"), text=True, strict=True),
)  # fmt: skip
TOP_SD = 0.5  # of log seconds at the largest batch, around what was measured
FLOOR = (1.0, 2.0)  # Beta, of the floor's share at the largest batch: small, and any
NOISE = Scale(0.02, 2.5)  # of log seconds: repeats, and how far a step is from a line
TAIL = 4.0  # degrees of freedom of errors
FEWEST_BATCHES = 2
MOST_LADDERS = 200
MOST_NOTES = 10
ONE = "one"  # the setup of a table that names none


@dataclass(frozen=True)
class LadderData:
    """Rungs.

    Attributes:
        setups: names, in the order of `of`.
        of: setup of each rung, [rung].
        batch, log_s: of each rung, [rung].
        top, log_top: largest batch and mean log seconds at it, [setup].
    """

    setups: Annotated[tuple[str, ...], "setup"]
    of: Annotated[np.ndarray, "rung -> setup"]
    batch: Annotated[np.ndarray, "rung"]
    log_s: Annotated[np.ndarray, "rung"]
    top: Annotated[np.ndarray, "setup"]
    log_top: Annotated[np.ndarray, "setup"]


class Ladder(Model[LadderData]):
    """The model by the name "ladder"."""

    name = "ladder"
    columns = COLUMNS
    reported = ("log_top", "floor", "noise")
    no_variability = "a fit of a ladder describes seconds of a step, not how steps vary."

    def prepare(self, frame: pd.DataFrame) -> LadderData:
        """Rungs of a checked table.

        Raises:
            DataError: a setup has fewer than two batch sizes, or there are too many setups.
        """
        frame = frame.sort_values(["batch", "step_s"])  # which step came first says nothing here
        names = [name or ONE for name in texts_of(frame, "setup")]
        setups = tuple(sorted(set(names)))
        if len(setups) > MOST_LADDERS:
            raise DataError(f"more than {MOST_LADDERS} setups. Is the column `setup` what it should be?")
        of = np.array([setups.index(name) for name in names], dtype=np.int64)
        batch, log_s = frame["batch"].to_numpy(dtype=float), np.log(frame["step_s"].to_numpy(dtype=float))
        for place, name in enumerate(setups):
            found = len(np.unique(batch[of == place]))
            if found < FEWEST_BATCHES:
                raise DataError(
                    f"setup {name[:40]}: {found} batch size, but a floor and a rate need {FEWEST_BATCHES}. Measure 3 to 5."
                )
        top = np.array([batch[of == place].max() for place in range(len(setups))])
        log_top = np.array([log_s[(of == place) & (batch == top[place])].mean() for place in range(len(setups))])
        return LadderData(setups, of, batch, log_s, top, log_top)

    def program(self, data: LadderData) -> None:
        """A line per setup, through Student's errors that they share."""
        log_top = numpyro.sample("log_top", dist.Normal(jnp.asarray(data.log_top), TOP_SD).to_event(1))
        floor = numpyro.sample("floor", dist.Beta(*FLOOR).expand([len(data.setups)]).to_event(1))
        noise = jnp.asarray(numpyro.sample("noise", NOISE.law()))
        share = jnp.asarray(data.batch / data.top[data.of])
        mean = jnp.asarray(log_top)[data.of] + jnp.log(_relative(jnp.asarray(floor)[data.of], share))
        numpyro.factor("rungs", dist.StudentT(TAIL, mean, noise).log_prob(jnp.asarray(data.log_s)).sum())

    def start(self, data: LadderData) -> dict[str, Any]:
        """Initial values: the measured rate of the largest batch, and 0.3 of it as floor."""
        n = len(data.setups)
        return {"log_top": np.asarray(data.log_top), "floor": np.full(n, 0.3), "noise": np.asarray(NOISE.median)}

    def describe(self, data: LadderData, draws: Draws) -> dict[str, Any]:
        """Floor, seconds and rate of every setup."""
        return {
            "n_rungs": len(data.batch),
            "setups": {name: self._of_setup(data, draws, place) for place, name in enumerate(data.setups)},
            "noise": interval(draws["noise"]),
            "notes": [self._in_a_job_file(data, draws, name) for name in data.setups[:MOST_NOTES]],
        }

    def _in_a_job_file(self, data: LadderData, draws: Draws, setup: str) -> str:
        law = self.law(data, draws, setup)
        floor_s, s_per_sample = (float(np.median(x)) for x in (law.floor_s, law.s_per_sample))
        return (
            f"{setup} in a job file: model: {{kind: ladder, name: NAME, floor_s: {floor_s:.4g}, "
            f"s_per_sample: {s_per_sample:.4g}, "
            f"most_samples: {int(law.batches[1])}, measured_on: DEVICE, n_parameters: N}}"
        )

    def _of_setup(self, data: LadderData, draws: Draws, place: int) -> dict[str, Any]:
        law = self.law(data, draws, data.setups[place])
        return {
            "floor_s": interval(law.floor_s),
            "s_per_sample": interval(law.s_per_sample),
            "samples_per_s_at_most": interval(1.0 / law.s_per_sample),
            "batch_of_half_the_rate": interval(law.floor_s / law.s_per_sample),
        }

    def law(self, data: LadderData, draws: Draws, setup: str = "") -> LadderLaw:
        """Step time of a setup; of the only one where none is named.

        Raises:
            FitError: no such setup, or several and none is named.
        """
        setup = chosen("setup", setup, data.setups)
        place = data.setups.index(setup)
        top_s, floor = np.exp(np.asarray(draws["log_top"])[:, place]), np.asarray(draws["floor"])[:, place]
        return LadderLaw(
            floor_s=top_s * floor,
            s_per_sample=top_s * (1.0 - floor) / data.top[place],
            noise=np.asarray(draws["noise"]),
            batches=(float(data.batch[data.of == place].min()), float(data.top[place])),
            source=f"a ladder of {int((data.of == place).sum())} steps on {setup}",
        )

    def score(
        self, data: LadderData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Errors of left-out rungs, of setups that have others, with those of seconds in proportion to the batch."""
        names = [name or ONE for name in texts_of(left_out, "setup")]
        rows = left_out[[name in data.setups for name in names]]
        return group_scores(
            rows,
            column,
            "step_s",
            lambda some, rng: _log_seconds(data, draws, some, rng),
            lambda some: _in_proportion(data, some),
            key,
        )


def _relative(floor: Any, share: Any) -> Any:
    """Seconds over those at the largest batch, at a share of that batch."""
    return floor + (1.0 - floor) * share


def _places(data: LadderData, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    of = np.array([data.setups.index(name or ONE) for name in texts_of(rows, "setup")], dtype=np.int64)
    return of, rows["batch"].to_numpy(dtype=float) / data.top[of]


def _log_seconds(data: LadderData, draws: Draws, rows: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    of, share = _places(data, rows)
    mean = np.asarray(draws["log_top"])[:, of] + np.log(_relative(np.asarray(draws["floor"])[:, of], share))
    return mean + np.asarray(draws["noise"])[:, None] * rng.standard_t(TAIL, mean.shape)


def _in_proportion(data: LadderData, rows: pd.DataFrame) -> np.ndarray:
    of, share = _places(data, rows)
    return np.exp(data.log_top[of]) * share
