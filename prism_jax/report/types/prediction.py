"""PredictionReport: the distribution of the step time of a job, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...result.guarantee import Guarantee
from ..codec import WHERE_KNOWN
from ..report import Report
from .memory import MemoryFacts
from .open_field import OpenFieldFacts
from .record import RunRecord


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
    """90 % interval of each quantile over what a fit leaves open."""

    p5: Bounds
    p50: Bounds
    p95: Bounds
    p99: Bounds
    p999: Bounds


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
    """What the mean step costs, in the currency of the price of a GPU-hour; `per_mtoken`: of a million tokens (samples)."""

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
class PredictionReport(Report):
    """Distribution of the step time of a job, where the time goes, and what owns the tail.

    Attributes:
        step_time_s, mc_error_s: over fleets and steps, and the Monte Carlo error.
        model_band_s: what the calibration of the cost model leaves open.
        deterministic_s: without any variability.
        gpu_active_s: of a device of the pipeline stage that works longest: kernels, and communication that nothing runs beside.
        host_s: of its host, which starts them; none of what a CUDA graph starts.
        naive_sum_s: both, hidden communication and transfers one after another, as if nothing ran beside anything: the baseline.
        host_bound: whether the host takes longer to start the passes than the device to run them.
        mfu, hfu, tflops_per_gpu, tokens_per_s_per_gpu: at the median step.
        breakdown_s: part of the step -> seconds of the mean step, average GPU.
        criticality: op class -> share of the critical path.
        p95_owner_s: kernel class or shared factor -> seconds by which p95 falls without its variability.
        fleet_share: share of the variance that lies between allocations: which GPUs the job gets. May pass 1 by its error.
        allocation: the spreads within one allocation and between allocations. Without an explanation (`--fast`) these two are
            None, and `breakdown_s`, `criticality` and `p95_owner_s` are empty.
        guarantee: None where too little was simulated for one; `notes` says so.
        prob_slower: fraction above the median, as text -> probability.
        tail_columns: effective number of samples beyond the p95.
        level: of the job by its own log; absent where none was used.
        open_fields: what the job leaves unsaid, the field that widens `model_band_s` most in front.
        money: absent without a price.
        epistemic_s: what applied fits leave open; absent without fits of variability.
    """

    kind: ClassVar[str] = "prediction"
    picture: ClassVar[str] = "prism_jax.plot.prediction:draw"

    job: JobFacts
    step_time_s: StepTime
    model_band_s: ModelBand
    mc_error_s: StepTimeError
    deterministic_s: float
    gpu_active_s: float
    host_s: float
    naive_sum_s: float
    host_bound: bool
    mfu: float
    hfu: float
    tflops_per_gpu: float
    tokens_per_s_per_gpu: float
    memory_bytes_per_gpu: MemoryFacts
    fits: bool
    breakdown_s: Mapping[str, float]
    criticality: Mapping[str, float]
    p95_owner_s: Mapping[str, float]
    fleet_share: float | None
    allocation: AllocationFacts | None
    guarantee: Guarantee | None
    prob_slower: Mapping[str, float]
    method: str
    n_samples: int
    tail_columns: float
    notes: tuple[str, ...]
    seed: int
    elapsed_s: Elapsed
    record: RunRecord
    level: Annotated[LevelFacts | None, WHERE_KNOWN] = None
    money: Annotated[MoneyFacts | None, WHERE_KNOWN] = None
    epistemic_s: Annotated[FitBand | None, WHERE_KNOWN] = None
    open_fields: tuple[OpenFieldFacts, ...] = ()

    def lines(self) -> list[str]:
        from ..text.prediction import lines

        return lines(self)
