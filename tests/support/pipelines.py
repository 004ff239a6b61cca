"""Pipelines that tests run: shapes every schedule accepts, costs, and the event simulator applied to a schedule and its cost."""

import numpy as np
from hypothesis import strategies as st

from prism_jax.core.kernels import COMM_AXES, COMPUTE_CLASSES, PASSES
from prism_jax.cost.step import StepCost
from prism_jax.schedule.order import Op, Part, ScheduleOrder
from prism_jax.schedule.registry import make_schedule

from .oracle import Simulation, simulate


@st.composite
def schedules(draw: st.DrawFn) -> ScheduleOrder:
    """Any schedule with a shape it accepts, few micro-batches and odd numbers included."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipe"]))
    pp = draw(st.sampled_from([2, 4, 6]) if name == "dualpipe" else st.integers(1, 6))
    if name == "dualpipe":
        return make_schedule(name, pp, 2 * draw(st.integers(pp, pp + 5)), 1)
    if name == "interleaved":
        return make_schedule(name, pp, draw(st.integers(pp, 3 * pp + 2)), draw(st.integers(2, 4)))
    return make_schedule(name, pp, draw(st.integers(1, 3 * pp + 2)), 2 if name == "zb_v" else 1)


def random_cost(schedule: ScheduleOrder, seed: int, blocking: bool = False) -> StepCost:
    """Every number different, so that a wrong index shows."""
    rng = np.random.default_rng(seed)
    n_chunk, pp = schedule.n_chunk, schedule.pp
    return StepCost(
        compute_s=rng.uniform(0.5, 2.0, (len(PASSES), n_chunk, len(COMPUTE_CLASSES))),
        comm_s=rng.uniform(0.0, 1.5, (len(PASSES), n_chunk, len(COMM_AXES))),
        hidden_comm_s=rng.uniform(0.0, 0.5, (len(PASSES), n_chunk, len(COMM_AXES))),
        p2p_s=np.append(rng.uniform(0.1, 1.0, n_chunk - 1), 0.0),
        p2p_blocking=blocking,
        end_compute_s=rng.uniform(0.0, 1.0, pp),
        end_comm_s=rng.uniform(0.0, 1.0, pp),
        end_hidden_comm_s=np.zeros(pp),
        collective_of={},
        model_flops=1.0,
        hardware_flops=1.0,
    )


def compute_only(schedule: ScheduleOrder, f_s: float, b_s: float, w_s: float) -> StepCost:
    """The same seconds for every chunk and no communication at all."""
    n_chunk, pp = schedule.n_chunk, schedule.pp
    compute_s = np.zeros((len(PASSES), n_chunk, len(COMPUTE_CLASSES)))
    compute_s[:, :, 0] = np.array([f_s, b_s, w_s])[:, None]
    none = np.zeros((len(PASSES), n_chunk, len(COMM_AXES)))
    end = np.zeros(pp)
    return StepCost(compute_s, none, none, np.zeros(n_chunk), False, end, end, end, {}, 1.0, 1.0)


def op_seconds(op: Op, cost: StepCost) -> float:
    """Seconds of an op by the rule of `graph.build`, written down once more: communication beside the other side's compute."""
    sides = [[p for p in op.parts if p.kind == "F"], [p for p in op.parts if p.kind != "F"]]

    def total(values: np.ndarray, side: list[Part]) -> float:
        return float(sum(values[PASSES.index(p.kind), p.chunk].sum() for p in side))

    compute, comm, hidden = ([total(v, s) for s in sides] for v in (cost.compute_s, cost.comm_s, cost.hidden_comm_s))
    if sides[0] and sides[1]:
        comm = [max(0.0, comm[i] - max(0.0, compute[1 - i] - hidden[1 - i])) for i in (0, 1)]
    return sum(compute) + sum(comm)


def simulate_cost(schedule: ScheduleOrder, cost: StepCost) -> Simulation:
    """The event simulator on the noise-free seconds of `cost`."""

    def transfer_s(replica: int, part: tuple[str, int, int]) -> float:
        kind, _, chunk = part
        return float(cost.p2p_s[chunk if kind == "F" else chunk - 1])

    return simulate(
        schedule_parts(schedule),
        schedule.n_chunk,
        lambda replica, stage, member, index: op_seconds(schedule.orders[stage][index], cost),
        transfer_s,
        sends_block=cost.p2p_blocking,
        reduce_s=dict(enumerate(cost.end_comm_s.tolist())),
        optimizer_s=lambda replica, stage, member: float(cost.end_compute_s[stage]),
    )


def schedule_parts(schedule: ScheduleOrder) -> list[list[tuple[Part, ...]]]:
    """Orders as the event simulator takes them: parts are plain (kind, micro-batch, chunk) tuples to it."""
    return [[op.parts for op in order] for order in schedule.orders]
