"""Shipped pipeline schedules: their orders, micro-batches in flight, and what holds for every registered one."""

import pickle
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.graph.build import build_graph, level_table
from prism_jax.plan.plan import ParallelPlan
from prism_jax.schedule.base import PipelineSchedule
from prism_jax.schedule.order import Op, ScheduleOrder, peak_activations, peak_logits
from prism_jax.schedule.registry import SCHEDULES, make_schedule, resolve_schedule
from prism_jax.schedule.zero_bubble import DualPipe
from tests.support.pipelines import compute_only, random_cost, schedules
from tests.support.timeline import Timeline, timeline

SHAPES = [(2, 4), (4, 8), (4, 15), (8, 16), (8, 40)]
TIMES = [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (0.9, 1.5, 0.6), (1.0, 1.1, 1.0)]  # F, B, W with W <= F and W <= B


def run(schedule: ScheduleOrder, f_s: float, b_s: float, w_s: float) -> Timeline:
    return timeline(build_graph(schedule, compute_only(schedule, f_s, b_s, w_s)))


def longest_span_s(schedule: ScheduleOrder, times: Timeline) -> float:
    graph = build_graph(schedule, compute_only(schedule, 1.0, 1.0, 1.0))
    spans = []
    for stage in range(schedule.pp):
        runs = graph.op[:, stage] >= 0
        spans.append(times.end_s[runs, stage].max() - times.start_s[runs, stage].min())
    return max(spans)


@given(schedules())
def test_every_part_runs_once_on_its_stage(schedule: ScheduleOrder) -> None:
    seen = Counter(part for order in schedule.orders for op in order for part in op.parts)
    wanted = {(k, m, q) for k in "FBW" for m in range(schedule.n_micro_batch) for q in range(schedule.n_chunk)}
    assert set(seen) == wanted
    assert set(seen.values()) == {1}
    for stage, order in enumerate(schedule.orders):
        assert all(schedule.stage_of(p.chunk, p.micro_batch) == stage for op in order for p in op.parts)


@given(schedules())
def test_every_stage_does_the_same_number_of_parts(schedule: ScheduleOrder) -> None:
    n_part = [sum(len(op.parts) for op in order) for order in schedule.orders]
    assert n_part == [3 * schedule.n_micro_batch * schedule.virtual_stages] * schedule.pp


@given(schedules())
def test_only_zero_bubble_schedules_split_the_backward(schedule: ScheduleOrder) -> None:
    split = {len(op.parts) for order in schedule.orders for op in order if op.parts[0].kind != "F"}
    if schedule.name.startswith("zb"):
        assert split == {1}
    elif schedule.name != "dualpipe":
        assert split == {2}


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("pp", "n_micro_batch"), SHAPES)
def test_gpipe_and_1f1b_idle_for_one_fill_and_drain(name: str, pp: int, n_micro_batch: int) -> None:
    """(p - 1)(f + b): arXiv 2104.04473, section 2.2."""
    f_s, b_s, w_s = 1.0, 1.3, 0.9
    step_s = run(make_schedule(name, pp, n_micro_batch, 1), f_s, b_s, w_s).step_s
    busy_s = n_micro_batch * (f_s + b_s + w_s)
    assert step_s - busy_s == pytest.approx((pp - 1) * (f_s + b_s + w_s), abs=1e-9)


@pytest.mark.parametrize(("pp", "n_micro_batch"), [(2, 4), (4, 8), (4, 20), (8, 16)])
@pytest.mark.parametrize("virtual_stages", [2, 3, 4])
def test_interleaving_divides_the_bubble_by_the_chunks_per_stage(
    pp: int, n_micro_batch: int, virtual_stages: int
) -> None:
    """(p - 1)(f + b) / v: arXiv 2104.04473, section 2.2."""
    f_s, b_s, w_s = 1.0, 1.3, 0.9
    schedule = make_schedule("interleaved", pp, n_micro_batch, virtual_stages)
    times = run(schedule, f_s / virtual_stages, b_s / virtual_stages, w_s / virtual_stages)
    busy_s = n_micro_batch * (f_s + b_s + w_s)
    assert times.step_s - busy_s == pytest.approx((pp - 1) * (f_s + b_s + w_s) / virtual_stages, abs=1e-9)


@pytest.mark.parametrize("n_micro_batch", range(4, 17))
def test_interleaving_takes_any_number_of_micro_batches_from_pp_on(n_micro_batch: int) -> None:
    """A last group that is not full costs no more than the bubble of a full one."""
    schedule = make_schedule("interleaved", 4, n_micro_batch, 3)
    assert run(schedule, 1.0, 1.0, 1.0).step_s - 3 * 3 * n_micro_batch == pytest.approx(3 * 3.0, abs=1e-9)


@pytest.mark.parametrize(("pp", "n_micro_batch"), SHAPES)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("name", "n_hidden"), [("zb_h1", 1), ("zb_h2", 2)])
def test_zero_bubble(name: str, n_hidden: int, pp: int, n_micro_batch: int, times: tuple[float, float, float]) -> None:
    """(p - 1)(F + B - W) and (p - 1)(F + B - 2 W), nothing at F = B = W: arXiv 2401.10241, table 2; spans, of ZB-H2 from
    2 p - 1 micro-batches on, and of ZB-H1 steps as well.
    """
    f_s, b_s, w_s = times
    schedule = make_schedule(name, pp, n_micro_batch, 1)
    ran = run(schedule, *times)
    for counted_s in (longest_span_s(schedule, ran), *([ran.step_s] if name == "zb_h1" else [])):
        bubble_s = counted_s - n_micro_batch * sum(times)
        assert bubble_s == pytest.approx((pp - 1) * (f_s + b_s - n_hidden * w_s), abs=1e-9)


@pytest.mark.parametrize(("pp", "n_micro_batch"), SHAPES)
def test_zb_v_has_no_bubble_when_all_passes_last_alike(pp: int, n_micro_batch: int) -> None:
    """Zero at F = B = W: arXiv 2401.10241, section 6; spans, from 2 p - 1 micro-batches on."""
    schedule = make_schedule("zb_v", pp, n_micro_batch, 2)
    times = run(schedule, 0.5, 0.5, 0.5)
    assert longest_span_s(schedule, times) == pytest.approx(3 * n_micro_batch, abs=1e-9)
    assert times.step_s == pytest.approx(3 * n_micro_batch + (pp - 1) * 0.5, abs=1e-9)


@pytest.mark.parametrize(("pp", "n_micro_batch"), [(2, 4), (4, 8), (4, 14), (8, 16), (8, 20), (16, 64)])
@pytest.mark.parametrize(("f_s", "w_s", "beside_s"), [(1.0, 1.0, 3.0), (1.0, 1.0, 2.3), (1.0, 0.7, 2.2)])
def test_dualpipe_bubble(pp: int, n_micro_batch: int, f_s: float, w_s: float, beside_s: float) -> None:
    """(p/2 - 1)(F&B + B - 3 W), B the whole backward: arXiv 2412.19437, table 2.

    F&B is the time of a forward beside a backward. The table takes the input gradient to last as long as the forward
    (B = F + W); where it lasts longer, the reference order idles less than the table says. Idle seconds are those of the
    stage that idles longest, since stages differ in how many of their passes overlap.
    """
    schedule = make_schedule("dualpipe", pp, n_micro_batch, 1)
    graph = build_graph(schedule, compute_only(schedule, 1.0, 1.0, 1.0))
    seconds = {"F": f_s, "B": f_s, "W": w_s, "BW": f_s + w_s, "FBW": beside_s}
    per_op = [seconds["".join(part.kind for part in op.parts)] for order in schedule.orders for op in order]
    op_s = np.where(graph.op >= 0, np.array(per_op)[graph.op], 0.0)
    idle_s = timeline(graph, op_s=op_s).step_s - op_s.sum(axis=0)
    assert idle_s.max() == pytest.approx((pp // 2 - 1) * (beside_s + f_s + w_s - 3 * w_s), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "pp", "n_micro_batch", "virtual_stages", "said"),
    [
        ("1f1b", 4, 8, 2, "interleaved"),
        ("gpipe", 4, 8, 2, "virtual_stages=1"),
        ("interleaved", 4, 8, 1, "1f1b"),
        ("interleaved", 4, 3, 2, "n_micro_batch=4"),
        ("zb_v", 4, 8, 1, "virtual_stages=2"),
        ("dualpipe", 3, 8, 1, "even pp"),
        ("dualpipe", 4, 9, 1, "n_micro_batch=10"),
        ("dualpipe", 4, 6, 1, "n_micro_batch=8"),
        ("zb_h1", 4, 0, 1, "n_micro_batch = 0"),
        ("1f1bb", 4, 8, 1, "did you mean 1f1b"),
        ("fastest", 4, 8, 1, "gpipe, 1f1b"),
    ],
)
def test_an_impossible_schedule_names_the_remedy(
    name: str, pp: int, n_micro_batch: int, virtual_stages: int, said: str
) -> None:
    with pytest.raises(PlanError, match=said.replace("(", r"\(")):
        make_schedule(name, pp, n_micro_batch, virtual_stages)


# --- Closed forms of the activations in flight agree with counting them along the orders, and with the papers --------


def in_flight(
    name: str, pp: int, n_micro_batch: int, stage: int, virtual_stages: int = 1, kept_for_w: float = 1.0
) -> float:
    return SCHEDULES.named(name).in_flight(stage, pp, n_micro_batch, virtual_stages, kept_for_w)


@given(schedules(), st.sampled_from([1.0, 32 / 34, 0.5, 0.0]))
def test_closed_forms_equal_the_count(schedule: ScheduleOrder, kept_for_w: float) -> None:
    degrees = (schedule.pp, schedule.n_micro_batch)
    closed = [in_flight(schedule.name, *degrees, s, schedule.virtual_stages, kept_for_w) for s in range(schedule.pp)]
    assert peak_activations(schedule, kept_for_w) == pytest.approx(closed, rel=1e-12)


@given(schedules())
def test_logits_equal_the_count(schedule: ScheduleOrder) -> None:
    own, degrees = SCHEDULES.named(schedule.name), (schedule.pp, schedule.n_micro_batch, schedule.virtual_stages)
    held = [own.logits_held(stage, *degrees) for stage in range(schedule.pp)]
    if schedule.name == "interleaved" and schedule.n_micro_batch % schedule.pp:
        assert all(0 <= n <= counted for n, counted in zip(held, peak_logits(schedule), strict=True))
    else:
        assert peak_logits(schedule) == held


@pytest.mark.parametrize("stage", range(4))
def test_zero_bubble_memory_is_that_of_the_paper(stage: int) -> None:
    """Worker i = stage + 1 of p: (p - i + 1) M_B + (i - 1) M_W for ZB-H1, (2p - 2i + 1) M_B + (2i - 2) M_W for ZB-H2
    (arXiv 2401.10241, section 2.3)."""
    p, i, kept = 4, stage + 1, 32 / 34
    h1, h2 = (in_flight(name, p, 16, stage, kept_for_w=kept) for name in ("zb_h1", "zb_h2"))
    assert h1 == pytest.approx(p - i + 1 + kept * (i - 1))
    assert h2 == pytest.approx(2 * p - 2 * i + 1 + kept * (2 * i - 2))


def test_interleaved_first_stage_holds_what_the_recomputation_paper_says() -> None:
    """Factor 1 + (p - 1)/(p v) over 1F1B on the first stage (arXiv 2205.05198, section 4.2.3)."""
    p, v = 8, 3
    held = in_flight("interleaved", p, 32, 0, v) / v
    assert held / in_flight("1f1b", p, 32, 0) == pytest.approx(1 + (p - 1) / (p * v))


def test_dualpipe_holds_one_more_than_the_stages() -> None:
    """PP + 1: arXiv 2412.19437, table 2."""
    assert [in_flight("dualpipe", 8, 20, stage) for stage in range(8)] == [9.0] * 8


def test_interleaving_fewer_micro_batches_than_stages_is_refused() -> None:
    with pytest.raises(PlanError, match="n_micro_batch=8"):
        in_flight("interleaved", 8, 4, 0, 2)


def size_at_fullest(ops: tuple[Op, ...], pp: int, sizes: list[float]) -> float:
    """Size of what a stage holds at its fullest, counted op by op; a forward that runs counts in full."""
    held = fullest = 0.0
    for op in ops:
        for part in op.parts:
            size = sizes[part.chunk // pp]
            held += size if part.kind == "F" else 0.0
            fullest = max(fullest, held)
            held -= size if part.kind == "B" else 0.0
    return fullest


@pytest.mark.parametrize(("pp", "n_micro_batch", "v"), [(2, 4, 2), (4, 8, 2), (4, 10, 3), (2, 8, 4)])
@pytest.mark.parametrize("short", [0, -1])
def test_interleaved_chunks_of_unlike_size_in_flight_equal_the_count(
    pp: int, n_micro_batch: int, v: int, short: int
) -> None:
    own = SCHEDULES.named("interleaved")
    orders = own.orders(pp, n_micro_batch, v)
    sizes = [2.0] * v
    sizes[short] = 0.0  # as with an embedding or a head in the place of layers
    for stage in range(pp):
        held = own.in_flight_of_chunks(stage, pp, n_micro_batch, v, sizes)
        assert sum(n * size for n, size in zip(held, sizes, strict=True)) == size_at_fullest(orders[stage], pp, sizes)


def test_equal_chunks_share_what_is_in_flight() -> None:
    own = SCHEDULES.named("interleaved")
    assert own.in_flight_of_chunks(0, 4, 8, 2, [3.0, 3.0]) == (own.in_flight(0, 4, 8, 2) / 2,) * 2


# --- Every schedule --------------------------------------------------------------------------------------------------


EVERY = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)


def shapes(schedule: PipelineSchedule) -> Iterator[tuple[int, int, int]]:
    """(pp, n_micro_batch, virtual_stages), those with problems included."""
    return ((pp, m, v) for pp in range(1, 6) for m in range(14) for v in (1, 2, 3))


def possible(schedule: PipelineSchedule) -> list[tuple[int, int, int]]:
    return [shape for shape in shapes(schedule) if not any(schedule.problems(*shape))]


@EVERY
def test_without_problems_it_can_be_run_and_with_any_it_is_refused(schedule: PipelineSchedule) -> None:
    sound = possible(schedule)
    assert sound
    for shape in shapes(schedule):
        if shape in sound:
            order = schedule.lay_out(*shape)
            assert (level_table(order).op >= 0).sum() == sum(map(len, order.orders))
            parts = [part for own in order.orders for op in own for part in op.parts]
            assert len(parts) == len(set(parts)) == 3 * order.n_chunk * order.n_micro_batch
        else:
            with pytest.raises(PlanError, match=f"schedule = {schedule.name}"):
                schedule.lay_out(*shape)


@EVERY
def test_conditions_on_arrays_are_those_on_numbers(schedule: PipelineSchedule) -> None:
    m = np.arange(1, 30)
    for pp in range(1, 7):
        for v in (1, 2, 3):
            if not schedule.layout_problem(pp, v):
                one_by_one = [not any(schedule.problems(pp, int(n), v)) for n in m]
                np.testing.assert_array_equal(schedule.enough_micro_batches(pp, m, v), one_by_one)


@EVERY
def test_what_it_leaves_out_would_be_right_too(schedule: PipelineSchedule) -> None:
    """Closed forms of the activations in flight stand for the count that a schedule without them gets."""
    for pp, m, v in possible(schedule):
        if m % 3 == 1 or m == 2 * pp:
            own = [schedule.in_flight(stage, pp, m, v) for stage in range(pp)]
            assert own == pytest.approx([PipelineSchedule.in_flight(schedule, stage, pp, m, v) for stage in range(pp)])


@EVERY
def test_stages_share_every_chunk_and_hold_it_where_its_micro_batches_run(schedule: PipelineSchedule) -> None:
    for pp, m, v in possible(schedule)[::5]:
        order = schedule.lay_out(pp, m, v)
        np.testing.assert_allclose(schedule.stage_shares(pp, v).sum(axis=1), 1.0)
        for chunk in range(order.n_chunk):
            stages = {order.stage_of(chunk, micro_batch) for micro_batch in range(m)}
            assert stages == {stage for stage in range(pp) if chunk in schedule.chunks_of_stage(stage, pp, v)}


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_what_the_bound_assumes_holds(schedule: PipelineSchedule, seed: int) -> None:
    """fill + busy + drain of every stage, each where the schedule says so, is no more than the time it takes."""
    for pp, m, v in possible(schedule)[seed::9]:
        order = schedule.lay_out(pp, m, v)
        cost = random_cost(order, seed)
        compute, comm = cost.compute_s.sum(axis=2), cost.comm_s.sum(axis=2)
        seconds = compute if schedule.overlaps_passes else compute + comm  # [kind, chunk]
        busy = m * (seconds.sum(axis=0) @ schedule.stage_shares(pp, v))
        before = np.cumsum(seconds[:, :pp], axis=1) - seconds[:, :pp]
        fill = before[0] if schedule.fills_one_way else np.zeros(pp)
        end = cost.end_compute_s + cost.end_comm_s
        drain = before[1] + before[2] + end[0] if schedule.drains_one_way else end
        bound = (fill + busy + np.maximum(end, drain)).max()
        assert bound <= timeline(build_graph(order, cost)).step_s * (1 + 1e-9)


@EVERY
def test_it_is_a_value(schedule: PipelineSchedule) -> None:
    again = pickle.loads(pickle.dumps(schedule))
    assert (again, hash(again), str(again)) == (schedule, hash(schedule), schedule.name)
    assert again != next(other for other in SCHEDULES if other.name != schedule.name)
    order = schedule.lay_out(*possible(schedule)[-1])
    assert pickle.loads(pickle.dumps(order)) == order
    assert schedule.about
    assert resolve_schedule(schedule) is schedule
    plan = ParallelPlan(micro_batch=1, global_batch=8, seq_len=8, schedule=schedule)
    assert plan.pipeline_schedule is schedule
    assert plan.schedule_name == schedule.name


def test_a_forward_beside_a_backward_must_be_declared() -> None:
    class Undeclared(DualPipe):
        overlaps_passes = False

    with pytest.raises(PlanError, match="overlaps_passes"):
        Undeclared().lay_out(4, 8, 1)
