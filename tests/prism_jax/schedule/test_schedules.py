"""Every schedule runs what it must, where it must, and leaves the bubble its authors publish.

Bubbles are idle seconds without noise, transfers or end-of-step work. F, B, W: one stage's forward, input gradient, weight
gradient; f = F, b = B + W. Two ways to count are in use:

- step: seconds from the start of the step to the end of the last stage, less the busy seconds of a stage (GPipe, 1F1B,
  interleaved, ZB-H1, DualPipe: all stages start and end the step together);
- span: the longest of the stages' own spans, first op to last op, less the busy seconds (ZB-H2 and ZB-V). The zero-bubble
  paper lets a stage start the next step while later stages still finish this one (section 4, post-validation of the
  optimizer). If all stages meet at the end, (pp - 1) F is added.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from prism_jax.core.errors import PlanError
from prism_jax.graph.build import build_graph
from prism_jax.schedule.order import ScheduleOrder
from prism_jax.schedule.registry import make_schedule
from tests.support.pipelines import compute_only, schedules
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
def test_zb_h1_bubble(pp: int, n_micro_batch: int, times: tuple[float, float, float]) -> None:
    """(p - 1)(F + B - W): arXiv 2401.10241, table 2; both ways to count agree."""
    f_s, b_s, w_s = times
    schedule = make_schedule("zb_h1", pp, n_micro_batch, 1)
    ran, busy_s = run(schedule, *times), n_micro_batch * sum(times)
    assert ran.step_s - busy_s == pytest.approx((pp - 1) * (f_s + b_s - w_s), abs=1e-9)
    assert longest_span_s(schedule, ran) - busy_s == pytest.approx((pp - 1) * (f_s + b_s - w_s), abs=1e-9)


@pytest.mark.parametrize(("pp", "n_micro_batch"), SHAPES)
@pytest.mark.parametrize("times", TIMES)
def test_zb_h2_bubble(pp: int, n_micro_batch: int, times: tuple[float, float, float]) -> None:
    """(p - 1)(F + B - 2 W), nothing at F = B = W: arXiv 2401.10241, table 2; spans, from 2 p - 1 micro-batches on."""
    f_s, b_s, w_s = times
    schedule = make_schedule("zb_h2", pp, n_micro_batch, 1)
    span_s = longest_span_s(schedule, run(schedule, *times))
    assert span_s - n_micro_batch * sum(times) == pytest.approx((pp - 1) * (f_s + b_s - 2 * w_s), abs=1e-9)


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
