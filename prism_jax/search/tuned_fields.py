"""The continuous fields that can be tuned: where each starts, its bounds and budget, how it enters the step, how it is rounded.

A field gives a job some numbers, its axis: bandwidth of every tier, power of the GPUs of every stage or kind of node, layers of
every chunk, micro-batches of every kind of replica, seconds between checkpoints. Numbers that share a budget keep the sum of the
job; what can be run are whole multiples of a unit. What the numbers change is a `Setting`, from which the seconds of every op
follow. Adding a field is an entry of `FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Floats, Values, namespace
from ..core.errors import DataError, SpecError
from ..core.registry import did_you_mean
from ..cost.partition import chunks_of_stage, layers_of_chunks
from ..cost.step import StepCost, step_cost
from ..horizon.checkpoint import DISK, Checkpoint, checkpoint_bytes
from ..horizon.run import expected_time
from ..job.job import Job
from ..simulate.sensitivity import Numbers, matters, numbers_of, with_numbers
from ..system.power import PowerLaw, power_law, slowdown
from ..workload.base.workload import n_body
from .stated_fleet import MOST, StatedFleet

GBIT_PER_S = 1e9 / 8
REACH = 4.0  # a bandwidth may become so many times less or more
LEAST_POWER = 0.3  # of TDP: what drivers let a limit be set to, about 200 of 700 W
USUAL_POWER = 0.8  # of TDP, where no budget is stated
RESTART_S = 660.0  # as of `predict_run`
HOUR_S = 3600.0  # between checkpoints, where the job's own interval is not known
ROUNDS = 8  # of clipping and scaling, which converge geometrically


@dataclass(frozen=True)
class TuneLimits:
    """Limits of tuning, and facts that the job does not state.

    Attributes:
        price: tier -> cost of its bandwidth as it is, relative to the others; 1 where nothing is said.
        power_watts: per GPU on average; None: `USUAL_POWER` of the device's limit.
        mtbf_h: mean time between interruptions of the job, hours; without it there is no best checkpoint interval.
        checkpoint: its times; None: `usual_checkpoint`. Its interval is the start.
        restart_s: from an interruption until a checkpoint starts to load.
        slowdowns: of GPUs that were measured: kernel class (or "all", "link", "nic") -> device -> factor.
    """

    price: Mapping[str, float] = field(default_factory=dict)
    power_watts: float | None = None
    mtbf_h: float | None = None
    checkpoint: Checkpoint | None = None
    restart_s: float = RESTART_S
    slowdowns: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


class Setting(NamedTuple):
    """Values that the tuned numbers change; a pytree.

    Attributes:
        numbers: of the hardware, as `sensitivity.numbers_of` has them.
        slower: factor on the seconds of compute, [lane, compute class] or [kind, member, lane, compute class] by `StatedFleet`.
        more_layers: [chunk] beyond those of the job's own split.
        times: factor on the step.
        share: of the job's micro-batches that a replica has, [kind] or the same for all.
    """

    numbers: Numbers
    slower: Values
    more_layers: Values
    times: Values
    share: Values = 1.0


@dataclass(frozen=True, eq=False)
class TunedAxis:
    """The numbers of one field of one job.

    Attributes:
        field: name in `FIELDS`.
        labels: of each number.
        unit: of the values, for people; `scale` values make one.
        start: the job's own.
        low, high: bounds of each.
        weight: the sum of weight times value stays what it is at the start; None: every number is free.
        grain: numbers that can be run are whole multiples of it; one of each, or one of all.
        enter: puts values into a setting.
        stretch: how many times further the search may go than with the others.
        note: assumptions, or the parts that the times count.
        is_split: units are coarse, so that after rounding they are moved between numbers while that helps.
    """

    field: str
    labels: tuple[str, ...]
    unit: str
    scale: float
    start: Floats
    low: Values
    high: Values
    weight: Floats | None
    grain: Values
    enter: Callable[[Setting, Values], Setting]
    stretch: float = 1.0
    note: str = ""
    is_split: bool = False

    def values(self, change: Values) -> Values:
        """Values [number], inside bounds and budget, whose logarithms are `stretch` times `change` [number] from the start."""
        xp = namespace(change)
        found = xp.clip(self.start * xp.exp(self.stretch * change), self.low, self.high)
        if self.weight is None:
            return found
        budget = float(self.weight @ self.start)
        for _ in range(ROUNDS):
            found = xp.clip(found * (budget / (self.weight * found).sum()), self.low, self.high)
        return found

    def rounded(self, values: Floats) -> Floats:
        """The nearest values that can be run; of a budget no more than there is, and all of it where units cost the same."""
        if self.weight is None:
            return np.clip(np.round(values / self.grain) * self.grain, self.low, self.high)
        price, most = np.broadcast_to(self.grain * self.weight, values.shape), np.broadcast_to(self.high, values.shape)
        whole = np.floor(values / self.grain + 1e-9)
        left = float(self.weight @ self.start) - float(price @ whole)
        for number in np.argsort(whole - values / self.grain, kind="stable"):
            next_one = ((whole + 1.0) * self.grain)[number]
            if price[number] <= left * (1.0 + 1e-9) and next_one <= most[number] * (1.0 + 1e-9):
                whole[number] += 1.0
                left -= float(price[number])
        return whole * self.grain

    @property
    def least(self) -> Floats:
        """The least that each may be rounded to: nothing, where its bound is less than one."""
        low = np.broadcast_to(self.low, self.start.shape)
        return np.where(low < 1.0, 0.0, low)

    def units(self, values: Floats, donor: int, receiver: int) -> list[int]:
        """Returns the numbers of units that may go from one number to another: one, or as many as make one whole, where it is a
        mean.
        """
        count, each = np.round(values / self.grain).astype(int), np.ones(len(values), int)
        if self.weight is not None:
            each = np.round(self.weight).astype(int)
        some = {1, (count[donor] - 1) % each[donor] + 1, -(count[receiver] + 1) % each[receiver] + 1}
        grain, high = np.broadcast_to(self.grain, values.shape), np.broadcast_to(self.high, values.shape)
        room = min(
            (values[donor] - self.least[donor]) / grain[donor], (high[receiver] - values[receiver]) / grain[receiver]
        )
        return sorted(int(n) for n in some if n <= room + 1e-6)


@dataclass(frozen=True)
class TunedField:
    """A field that can be tuned.

    Attributes:
        name: in options.
        about: one line.
        axis: its numbers for a job; None where the job has nothing to choose there.
    """

    name: str
    about: str
    axis: Callable[[Job, TuneLimits], TunedAxis | None]


def _bandwidth(job: Job, limits: TuneLimits) -> TunedAxis | None:
    tiers = job.cluster.tiers
    unknown = set(limits.price) - {tier.name for tier in tiers}
    if unknown:
        name = min(unknown)
        raise DataError(f"price of {name!r}: no such tier{did_you_mean(name, [tier.name for tier in tiers])}")
    used = [index for index in range(len(tiers)) if matters(job, ("tiers", index, "bytes_per_s"))]
    if len(used) < 2:
        return None
    own = np.array([float(tiers[index].bytes_per_s) for index in used])
    prices = np.array([float(limits.price.get(tiers[index].name, 1.0)) for index in used])
    if not (prices > 0.0).all():
        raise DataError("price of a tier: it must be above 0")

    def enter(setting: Setting, values: Values) -> Setting:
        changed = list(setting.numbers["tiers"])
        for place, index in enumerate(used):
            changed[index] = {**changed[index], "bytes_per_s": values[place]}
        return setting._replace(numbers={**setting.numbers, "tiers": changed})

    names = tuple(tiers[index].name for index in used)
    bounds = own / REACH, own * REACH
    note = "" if limits.price else "bandwidth: a tier costs as much as any other as it is"
    return TunedAxis("bandwidth", names, "GB/s", 1e9, own, *bounds, prices / own, GBIT_PER_S, enter, 2.0, note)


def _power(job: Job, limits: TuneLimits) -> TunedAxis | None:
    law, device, fleet = power_law(job.cluster.device), job.cluster.device, StatedFleet.of(job, limits.slowdowns)
    if fleet.gpus is None:
        names, n_gpu, place = tuple(f"stage {stage}" for stage in range(job.plan.pp)), np.ones(job.plan.pp), slice(None)
    else:
        names, n_gpu, place = fleet.node_labels(), np.bincount(fleet.node_kind).astype(float), fleet.place
    if law is None or len(names) == 1:
        return None
    tdp, own_law = float(device.power_watts), law
    watts = USUAL_POWER * tdp if limits.power_watts is None else limits.power_watts
    if not LEAST_POWER * tdp <= watts <= tdp:
        raise DataError(
            f"power budget: {watts:g} W per GPU, but {device.name} takes limits from {LEAST_POWER * tdp:.0f} to {tdp:.0f} W"
        )
    kinds = [name if name in law.bound else "compute" for name in job.model.kernel_classes]

    def enter(setting: Setting, values: Values) -> Setting:
        return setting._replace(slower=_slower(own_law, kinds, values / tdp)[place])

    assumed = f"power: {watts:g} W per GPU, {USUAL_POWER:.0%} of the limit, as none is stated"
    note = "" if limits.power_watts is not None else assumed
    own, least = np.full(len(names), watts), LEAST_POWER * tdp
    return TunedAxis("power", names, "W", 1.0, own, least, tdp, n_gpu, 1.0, enter, note=note)


def _slower(law: PowerLaw, kinds: list[str], limit_share: Values) -> Values:
    """Seconds under a limit [place] over those without, [place, compute class]."""
    xp = namespace(limit_share)
    by_class = [slowdown(law.bound[kind], law.clock_under(limit_share, law.busy[kind])) for kind in kinds]
    return xp.stack(by_class, axis=-1)


def _layers(job: Job, limits: TuneLimits) -> TunedAxis | None:
    own = np.array([len(chunk) for chunk in layers_of_chunks(n_body(job.model), job.plan)], dtype=float)
    try:
        job.model.deeper(len(own))
    except SpecError:
        return None
    if len(own) == 1:
        return None

    def enter(setting: Setting, values: Values) -> Setting:
        return setting._replace(more_layers=values - own)

    least = (
        np.minimum(own, 1.0) + (own < 1.0) * 1e-3
    )  # of a chunk that has none a share of a layer, since shares are scaled
    names = tuple(f"chunk {chunk}" for chunk in range(len(own)))
    most, weight = 2.0 * own + 2.0, np.ones(len(own))
    return TunedAxis("layers", names, "layers", 1.0, own, least, most, weight, 1.0, enter, is_split=True)


def _share(job: Job, limits: TuneLimits) -> TunedAxis | None:
    fleet, own = StatedFleet.of(job, limits.slowdowns), float(job.plan.n_micro_batch)
    n = fleet.n_of_kind.astype(float)
    if len(n) == 1 or fleet.unit is None or fleet.fewest == own:
        return None

    def enter(setting: Setting, values: Values) -> Setting:
        return setting._replace(share=values / own)

    start, most = np.full(len(n), own), np.minimum(MOST * own, own * n.sum() / n)
    return TunedAxis(
        "share", fleet.replica_labels(), "micro-batches each", 1.0, start, fleet.fewest, most, n, fleet.unit / n, enter,
        is_split=True,
    )  # fmt: skip


def usual_checkpoint(job: Job) -> Checkpoint:
    """Returns a checkpoint of the size of the states, on a parallel file system."""
    n_node = -(-job.plan.n_devices // job.cluster.node_size)
    return Checkpoint.of_bytes(checkpoint_bytes(job), n_node, (DISK,))


def _checkpoint(job: Job, limits: TuneLimits) -> TunedAxis | None:
    if limits.mtbf_h is None:
        return None
    made = limits.checkpoint or usual_checkpoint(job)
    rate, outage_s = 1.0 / (HOUR_S * limits.mtbf_h), limits.restart_s + made.load_s + made.background_s
    start = np.array([HOUR_S if made.interval_s is None else made.interval_s])

    def enter(setting: Setting, values: Values) -> Setting:
        return setting._replace(times=setting.times * expected_time(1.0, values[0], made.blocking_s, outage_s, rate))

    note = (
        f"checkpoint: steps count their share of saves ({made.blocking_s:.3g} s) and interruptions ({outage_s:.3g} s)"
    )
    return TunedAxis("checkpoint", ("interval",), "s", 1.0, start, 10.0, 1e6, None, 10.0, enter, 8.0, note)


FIELDS = {
    own.name: own
    for own in (
        TunedField("bandwidth", "of every network tier the step uses, for what they cost together today", _bandwidth),
        TunedField(
            "power", "limit of the GPUs of every pipeline stage, or kind of node, under a budget per GPU", _power
        ),
        TunedField("layers", "of every model chunk, their sum as it is", _layers),
        TunedField("share", "micro-batches of replicas that are stated to be unequal, the batch as it is", _share),
        TunedField(
            "checkpoint", "seconds of work between checkpoints; needs the time between interruptions", _checkpoint
        ),
    )
}


def own_setting(job: Job) -> Setting:
    """Returns the setting of the job as it stands."""
    n_lane, n_class = job.plan.pp, len(job.model.kernel_classes)
    n_chunk = job.plan.pp * job.plan.virtual_stages
    return Setting(numbers_of(job.cluster), np.ones((n_lane, n_class)), np.zeros(n_chunk), 1.0)


def cost_of(job: Job, setting: Setting, *, layers_move: bool) -> StepCost:
    """Seconds of a step under a setting; linear in the layers of a chunk, by the job with one layer more in every chunk.

    Args:
        layers_move: whether layers differ from the job's own.
    """
    cluster, eff = with_numbers(job.cluster, job.efficiency, setting.numbers)
    own = step_cost(job.model, cluster, job.plan, eff)
    if not layers_move:
        return own
    held = [len(chunk) for chunk in layers_of_chunks(n_body(job.model), job.plan)]
    plan = replace(job.plan, layer_split=tuple(n + 1 for n in held))
    more = step_cost(job.model.deeper(len(held)), cluster, plan, eff)
    share = np.zeros((job.plan.pp, len(held)))
    for lane in range(job.plan.pp):
        mine = list(chunks_of_stage(job.plan, lane))
        share[lane, mine] = 1.0 / len(mine)
    by_chunk, by_lane = setting.more_layers, share @ setting.more_layers
    changed: dict[str, Any] = {
        name: getattr(own, name) + by_chunk[None, :, None] * (getattr(more, name) - getattr(own, name))
        for name in ("compute_s", "comm_s", "hidden_comm_s")
    }
    changed |= {
        name: getattr(own, name) + by_lane * (getattr(more, name) - getattr(own, name))
        for name in ("end_compute_s", "end_comm_s", "end_hidden_comm_s")
    }
    return replace(own, **changed)
