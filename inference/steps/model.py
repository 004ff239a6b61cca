"""Model of how steps vary, from run to run, from system to system and with the number of GPUs.

    shape[configuration] ~ Gaussian process: sum of effects of benchmark, GPU, release, submitter, system, bending with log2(GPUs)
    shape[run] = shape[configuration] + deviation,  deviation ~ Student-t
    ln(total time of a run) = configuration + level,  level ~ Student-t, wide on some systems and narrow on others

A run's shape is the quantile function of its steps over their median, so that scaling all durations changes nothing; see
`runs`. Coordinates of the shape are fitted one by one, in the order of how well repeats determine them. What is fitted are
medians over the repeats of a configuration with their sampling variances, so the cost does not grow with steps or runs. A fit
of one configuration also says how long its steps take, which is the level of the job it logs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax.scipy.special import gammaln
from scipy.special import ndtr, ndtri, stdtrit

from prism_jax.calibration.key import MeasuredLevel, NoLevel
from prism_jax.variability.family_registry import Pool
from prism_jax.variability.tree import Variability

from ..data.columns import ModelColumn
from ..engine.diagnostics import Checks
from ..engine.model import Draws, GroupScore, Model
from .data import EFFECTS, LEVEL_SD, N_KNOT, N_SMOOTH, POOL, Configurations, StepsData, covariance, growth, steps_data
from .predict import Query, autocorrelation, configurations, level_law, new_run, shapes
from .report import describe, score_runs, unlabelled
from .runs import quantile, read_runs

N_REPLICATED = 200  # runs
N_POOL = 1000  # quantiles of the step factor: up to one step in 2,000


def measured_unit(data: StepsData) -> Query:
    """The first configuration that was fitted."""
    return Query(data.codes[[0]], data.log2_gpus[[0]], np.array([0]), data.kind[[0]])


# Standard deviation of an effect, where configurations of a benchmark have 1 in all: nine effects, a factor 2 either way.
EFFECT = (math.log(0.4), 0.7)
SIZE = 0.5  # of all effects together on one coordinate, the same for all effects: coordinates are scaled to be alike
OWN = (math.log(0.5), 0.7)  # of what is a configuration's own
REST = (math.log(0.7), 0.7)  # the same of the coordinates without effects
LENGTH = (math.log(3.0), 0.4)  # doublings: jobs within a factor 8 in GPUs resemble each other, beyond they need not
COUPLING = (4.0, 1.0)  # Beta; a step's own time and the interval between logs mostly tell the same
LEVEL_DOF = (math.log(2.0), 1.0)  # weight, in runs, of the kind's spread between totals against a configuration's own
# Medians of repeats differ by 0.07-0.2% on tuned systems, by per cents on others
LEVEL_SCALE = (math.log(1.5e-3), 1.5)
LEVEL_FLOOR = 1e-10  # added to squares of ln(total): clocks tick

COLUMNS = (
    ModelColumn("run", ("run_id",), required=True, text=True),
    ModelColumn("duration_s", ("value", "dt_ms", "step_time", "duration"), required=True, positive=True),
    ModelColumn("system", text=True),
    ModelColumn("submitter", text=True),
    ModelColumn("benchmark", ("source", "model"), text=True),
    ModelColumn("metric", text=True),
    ModelColumn("gpu", text=True),
    ModelColumn("n_gpus", ("num_gpus", "gpus"), positive=True),
    ModelColumn("n_nodes", ("num_nodes", "nodes"), positive=True),
    ModelColumn("round", text=True),
    ModelColumn("framework", text=True),
    ModelColumn("group", text=True),
    ModelColumn("job", text=True),
    ModelColumn("step", ("i", "pos", "global_step", "iteration", "iter")),
    ModelColumn("rank", ("global_rank", "world_rank", "process_index", "process_id", "worker"), text=True),
    ModelColumn("n_steps", positive=True),
    ModelColumn("flag"),
)


class StepsModel(Model[StepsData]):
    """The steps model; see the module."""

    name = "steps"
    default_method = "map"
    columns = COLUMNS
    reported = (
        "effect", "size", "own", "length", "coupling", "rest", "level_dof", "level_scale",
    )  # fmt: skip

    def prepare(self, frame: pd.DataFrame) -> StepsData:
        """The data of a checked table: shapes, levels and labels of every run.

        Raises:
            DataError: no run has enough steps.
        """
        return steps_data(frame)

    def program(self, data: StepsData) -> None:
        """The NumPyro model of shapes and levels of step times; arrays of `data` are traced."""
        _shapes(data)
        _rest(data)
        _levels(data)
        # Effects of a configuration not seen.
        numpyro.sample("typical", dist.Normal(jnp.zeros(N_SMOOTH), 1.0).to_event(1))

    def start(self, data: StepsData) -> dict[str, Any]:
        """Values of the sites at which chains begin: the centres of the priors."""
        return {
            "effect": np.full(len(EFFECTS), math.exp(EFFECT[0])),
            "size": np.ones(N_SMOOTH),
            "own": np.full(N_SMOOTH, math.exp(OWN[0])),
            "length": math.exp(LENGTH[0]),
            "coupling": 0.9,
            "rest": np.full(N_KNOT - N_SMOOTH, math.exp(REST[0])),
            "level_dof": math.exp(LEVEL_DOF[0]),
            "level_scale": np.full(len(data.kinds), math.exp(LEVEL_SCALE[0])),
            "typical": np.zeros(N_SMOOTH),
        }

    def describe(self, data: StepsData, draws: Draws) -> dict[str, Any]:
        """Describes how steps scatter, variance shares, differences between totals of repeats, and what could not be told."""
        return describe(data, draws)

    def variability(self, data: StepsData, draw: Mapping[str, np.ndarray]) -> Variability:
        """The tree of a configuration that was not measured, at the median GPU count: effects as in the site `typical`."""
        one = {name: np.asarray(value)[None] for name, value in draw.items()}
        asked = unlabelled(data)
        mean, variance = configurations(data, one, asked)
        own = np.zeros_like(mean[0, 0])
        own[:N_SMOOTH] = one["typical"][0]
        shape = shapes(data, mean[0, 0] + np.sqrt(variance[0, 0]) * own)
        factors = quantile(shape, (np.arange(N_POOL) + 0.5) / N_POOL)
        return Variability(
            name="fitted steps",
            step=Pool(tuple(factors.tolist())),
            step_ar1=autocorrelation(data, asked),
            source=f"prism-jax fit steps: {int(data.n_runs.sum())} runs of {len(data.units)} configurations",
        )

    def measured_level(self, data: StepsData, draws: Draws) -> MeasuredLevel | NoLevel:
        """The typical step of the one configuration that was fitted, as the level of a job.

        Notes: its logarithm is off by the sampling error of a median of autocorrelated steps, and by what another run of the job
            would differ by (Student-t, as wide as a normal law that has its 90% interval).
        """
        if len(data.units) > 1:
            return NoLevel(f"it holds {len(data.units)} configurations, and which of them the job is is not known")
        if not np.isfinite(data.step_s[0]):
            return NoLevel("its rows are not the times of single steps")
        asked = measured_unit(data)
        shape = shapes(data, data.value[0])
        low, high = quantile(shape, ndtr(np.array([-1.0, 1.0])))
        r, n = autocorrelation(data, asked), float(data.n_points[0] * data.n_runs[0])
        median_sd = np.sqrt(0.5 * np.pi / n * (1.0 + r) / (1.0 - r)) * 0.5 * (high - low)
        scale, freedom = level_law(data, draws, asked)
        run_sd = float(scale[0] * stdtrit(freedom[0], 0.95) / ndtri(0.95))
        return MeasuredLevel(
            step_s=float(data.step_s[0]),
            is_mean=bool(data.is_mean[0]),
            log_sd=float(np.hypot(median_sd, run_sd)),
            n_steps=int(data.n_run_steps[0] * data.n_runs[0]),
            n_runs=int(data.n_runs[0]),
            n_gpus=float(data.n_gpus[0]),
            job=data.jobs[0] if data.jobs else "",
        )

    def replicate(self, data: StepsData, draws: Draws, key: jax.Array) -> Checks | None:
        """Quantiles of the logged steps against those of new runs of the one configuration that was fitted; None for several."""
        if len(data.units) > 1:
            return None
        drawn = new_run(data, draws, measured_unit(data), n_steps=POOL.size, key=key, n_draw=N_REPLICATED)
        return Checks(data.pool[0], drawn, "step time over the median of its run")

    def score(
        self, data: StepsData, draws: Draws, left_out: pd.DataFrame, column: str, key: jax.Array
    ) -> list[GroupScore]:
        """One score for every group of `column`, benchmark and metric of the left-out runs."""
        runs = read_runs(left_out, data.schedules).runs
        first = left_out.drop_duplicates("run")
        names = dict(zip(first["run"].astype(str), first[column].astype(str), strict=True))
        return score_runs(data, draws, runs, [names[run.name] for run in runs], key)


def _shapes(data: StepsData) -> None:
    """Coordinates with effects: the process over configurations, integrated in closed form."""
    effect = numpyro.sample("effect", dist.LogNormal(jnp.full(len(EFFECTS), EFFECT[0]), EFFECT[1]).to_event(1))
    size = numpyro.sample("size", dist.LogNormal(jnp.zeros(N_SMOOTH), SIZE).to_event(1))
    amplitude = numpyro.deterministic("amplitude", jnp.asarray(size)[:, None] * effect)
    own = numpyro.sample("own", dist.LogNormal(jnp.full(N_SMOOTH, OWN[0]), OWN[1]).to_event(1))
    length = numpyro.sample("length", dist.LogNormal(*LENGTH))
    coupling = numpyro.sample("coupling", dist.Beta(*COUPLING))
    slope, places = jnp.asarray(data.slope[:N_SMOOTH]), Configurations.of(data)
    kernel = covariance(amplitude, own, length, coupling, slope, places, places)
    noise = jnp.asarray(data.noise[:, :N_SMOOTH]).T
    total = kernel + (noise + jnp.asarray(data.outlying[:, :N_SMOOTH]).T ** 2)[:, :, None] * jnp.eye(len(data.units))
    trend = slope[:, None] * growth(jnp.asarray(data.log2_gpus))[None]
    for c in range(N_SMOOTH):  # a batched factorisation waits for the threads that chains run on, and may wait for ever
        law = dist.MultivariateNormal(trend[c], total[c])
        numpyro.sample(f"shape_{c}", law, obs=jnp.asarray(data.value[:, c]))


def _rest(data: StepsData) -> None:
    """The other coordinates: Normal around the mean of their kind, which is integrated out."""
    spread = numpyro.sample("rest", dist.LogNormal(jnp.full(N_KNOT - N_SMOOTH, REST[0]), REST[1]).to_event(1))
    value = jnp.asarray(data.value[:, N_SMOOTH:])
    precision = 1.0 / (jnp.asarray(data.noise[:, N_SMOOTH:] + data.outlying[:, N_SMOOTH:] ** 2) + spread**2)
    member = (jnp.asarray(data.kind)[None, :] == jnp.arange(len(data.kinds))[:, None]).astype(value.dtype)
    weight, first = member @ precision, member @ (precision * value)
    inflation = 1.0 + LEVEL_SD**2 * weight
    square = (precision * value**2).sum() - (LEVEL_SD**2 * first**2 / inflation).sum()
    numpyro.factor("rest_shape", -0.5 * (square - jnp.log(precision).sum() + jnp.log(inflation).sum()))


def _levels(data: StepsData) -> None:
    """Totals of repeats: variances of configurations are inverse-gamma around their kind's, means free; both integrated out."""
    freedom = numpyro.sample("level_dof", dist.LogNormal(*LEVEL_DOF))
    n_kind = len(data.kinds)
    scale = numpyro.sample("level_scale", dist.LogNormal(jnp.full(n_kind, LEVEL_SCALE[0]), LEVEL_SCALE[1]).to_event(1))
    own = freedom * jnp.square(jnp.asarray(scale))[jnp.asarray(data.kind)]
    more = jnp.asarray(data.n_runs) - 1.0
    square = jnp.asarray(data.level_sum_sq) + LEVEL_FLOOR * more
    ahead, after = 0.5 * freedom, 0.5 * (freedom + more)
    log_density = gammaln(after) - gammaln(ahead) + ahead * jnp.log(own) - after * jnp.log(own + square)
    numpyro.factor("levels", jnp.where(more > 0.0, log_density, 0.0).sum())
