"""Parts of the report of a prediction: the job, the step time and its intervals, spreads, money, published figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.units import format_count, format_s

LINE = 80  # columns


@dataclass(frozen=True)
class JobFacts:
    """Names and sizes of a job."""

    name: str
    model: str
    cluster: str
    device: str
    variability: str
    framework: str
    n_devices: int
    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    schedule: str
    virtual_stages: int
    n_micro_batch: int
    tokens_per_step: int
    sample_unit: str
    dtype: str

    @property
    def title(self) -> str:
        """Name, model, devices, degrees and batch on one line; without the model, then the batch, where it is too long."""
        devices = f"{self.n_devices:,} x {self.device}, {self.axes}"
        batch = f"{format_count(self.tokens_per_step, 3)} {self.sample_unit}/step"
        titles = (f"{self.name}: {self.model} on {devices}, {batch}", f"{self.name}: {devices}, {batch}")
        return next((title for title in titles if len(title) <= LINE), f"{self.name}: {devices}")

    @property
    def axes(self) -> str:
        """Degrees above one, as "tp 8 x pp 16"."""
        degrees = ((axis, getattr(self, axis)) for axis in ("tp", "cp", "pp", "dp", "ep"))
        return " x ".join(f"{axis} {degree}" for axis, degree in degrees if degree > 1) or "one device"


@dataclass(frozen=True)
class StepTime:
    """Mean, standard deviation and quantiles of the step time, in the unit of the field that holds them."""

    mean: float
    std: float
    p5: float
    p50: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True)
class StepTimeError:
    """Monte Carlo standard error of each quantile."""

    p5: float
    p50: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True)
class ModelBand:
    """Quantiles of the median step that would be measured, given all that the cost model does not know."""

    p5: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Bounds:
    """An interval."""

    low: float
    high: float


@dataclass(frozen=True)
class FitBand:
    """90% interval of each quantile over what a fit leaves open."""

    p5: Bounds
    p50: Bounds
    p95: Bounds
    p99: Bounds
    p999: Bounds


@dataclass(frozen=True)
class TailQuantiles:
    """90% intervals of the upper quantiles."""

    p95: Bounds
    p99: Bounds


@dataclass(frozen=True)
class TailFacts:
    """90% intervals of quantiles of the step time on a system that was not measured, from the spread between measured ones.

    Attributes:
        over_p50: quantile over the median, minus 1.
        measured_s: quantile that would be measured, seconds: the same and the error of the cost model together.
    """

    over_p50: TailQuantiles
    measured_s: TailQuantiles


@dataclass(frozen=True)
class LevelFacts:
    """The level of a job from its own log: what was predicted without the log, times a factor, is what was measured.

    Attributes:
        file: the fit of the log.
        statistic: of the steps: median; mean where the log holds means over several steps.
        measured_s, predicted_s: that of the log, and of the prediction without it.
        factor: measured over predicted.
        factor_sd: standard deviation of the factor: steps that were sampled, another run, other GPUs.
        n_steps: logged.
    """

    file: str
    statistic: str
    measured_s: float
    predicted_s: float
    factor: float
    factor_sd: float
    n_steps: int


@dataclass(frozen=True)
class MoneyFacts:
    """Cost of the mean step, in the currency of the price of a GPU-hour; `per_mtoken`: of a million tokens (samples)."""

    price_per_gpu_hour: float
    per_step: float
    per_mtoken: float


@dataclass(frozen=True)
class AllocationFacts:
    """Spread of the step time within one allocation of GPUs and between allocations.

    Attributes:
        between_s: standard deviation of an allocation's mean step over allocations.
        within_s: standard deviation from step to step within one allocation, root mean square over allocations.
        p95_s: p95 of the steps within a typical allocation.
        p95_mc_error_s: its Monte Carlo standard error.
        share_mc_error: Monte Carlo standard error of `fleet_share`.
    """

    between_s: float
    within_s: float
    p95_s: float
    p95_mc_error_s: float
    share_mc_error: float


@dataclass(frozen=True)
class Elapsed:
    """Wall-clock seconds of the parts of a prediction."""

    compile: float
    run: float
    explain: float


@dataclass(frozen=True)
class WholeMatrix:
    """Rates at the median step if every query is counted with all keys of its sequence.

    Attributes:
        mfu: of the peak, 0-1.
        tflops_per_gpu: 10^12 FLOP/s.
    """

    mfu: float
    tflops_per_gpu: float


@dataclass(frozen=True)
class PublishedFigure:
    """A figure that the job file states, and what is predicted of it.

    Attributes:
        name: field of the section `published`.
        published, predicted: in that field's unit.
        whole_matrix: predicted with the whole matrix of scores; None where that is no other number.
    """

    name: str
    published: float
    predicted: float
    whole_matrix: float | None = None

    @property
    def figure(self) -> str:
        """The published figure with its unit; an MFU, which the reader has just read of, without its name."""
        number, unit = _FIGURES[self.name]
        return f"{number(self.published)}{'' if self.name == 'mfu' else unit}"

    @property
    def sentence(self) -> str:
        """Sentence with both next to each other, and the difference."""
        number, unit = _FIGURES[self.name]

        def against(value: float) -> str:
            return f"{number(value)} ({value / self.published - 1.0:+.1%})"

        whole = "" if self.whole_matrix is None else f", by Megatron-LM's count {against(self.whole_matrix)}"
        return f"published {number(self.published)}{unit}: predicted {against(self.predicted)}{whole}"


_FIGURES: dict[str, tuple[Callable[[float], str], str]] = {
    "step_s": (lambda value: format_s(value, 4), " per step"),
    "tflops_per_gpu": (lambda value: f"{value:.0f}", " TFLOP/s per GPU"),
    "mfu": (lambda value: f"{value:.1%}", " MFU"),
    "tokens_per_s_per_gpu": (lambda value: f"{value:,.0f}", " per second and GPU"),
}
