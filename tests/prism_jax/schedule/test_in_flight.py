"""Closed forms of the activations in flight agree with counting them along the orders, and with the papers."""

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.schedule.order import Op, ScheduleOrder, peak_activations, peak_logits
from prism_jax.schedule.registry import SCHEDULES
from tests.support.pipelines import schedules


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
