"""A schedule of one's own: one class, registered; check, predict, search, memory and `show schedules` know it."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

from prism_jax.core.errors import PlanError
from prism_jax.cost.memory import memory
from prism_jax.job.load_job import load_job
from prism_jax.job.rules import check_plan
from prism_jax.schedule.base import PipelineSchedule
from prism_jax.schedule.order import Op, Orders, ScheduleOrder, backward, forward, peak_activations, peak_logits
from prism_jax.schedule.registry import SCHEDULES, make_schedule
from prism_jax.search.ask_tell import AskTell
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.exhaustive import search
from prism_jax.search.local_search import local_search
from prism_jax.search.plan_costs import FEASIBLE, feasibility, lower_bound, table_cost
from prism_jax.search.space import PlanSpace
from prism_jax.shell.app import main
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from tests.support.jobs import stated


@dataclass(frozen=True)
class EagerOneFOneB(PipelineSchedule):
    """1F1B that runs `extra` more forwards ahead on every stage.

    A stage that waits for a gradient has one more forward to run.
    """

    name: str = "1f1b_eager"
    extra: int = 1

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """Forwards ahead, then one backward and one forward in turn."""
        return tuple(self._order(stage, pp, n_micro_batch) for stage in range(pp))

    def _order(self, stage: int, pp: int, n: int) -> tuple[Op, ...]:
        ahead = min(pp - stage + self.extra, n)
        ops = [forward(m, stage) for m in range(ahead)]
        for m in range(n):
            ops.append(backward(m, stage))
            if m + ahead < n:
                ops.append(forward(m + ahead, stage))
        return tuple(ops)


@dataclass(frozen=True)
class VGPipe(PipelineSchedule):
    """GPipe down the stages and up again, for even numbers of micro-batches."""

    name: str = "gpipe_v"
    fixed_virtual_stages: ClassVar[int | None] = 2

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """All forwards of a chunk, then all of the next."""
        micro_batches = range(n_micro_batch)
        chunks = [self.chunks_of_stage(stage, pp, virtual_stages) for stage in range(pp)]
        return tuple(
            (
                *(forward(m, chunk) for chunk in own for m in micro_batches),
                *(backward(m, chunk) for chunk in own[::-1] for m in micro_batches),
            )
            for own in chunks
        )

    def placements(self, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
        """A V."""
        return ((*range(pp), *reversed(range(pp))),)

    def enough_micro_batches(self, pp: int, n_micro_batch: np.ndarray, virtual_stages: int) -> np.ndarray:
        """Even numbers."""
        return n_micro_batch % 2 == 0

    def micro_batches_needed(self, pp: int, virtual_stages: int) -> str:
        """Even numbers."""
        return "an even number of micro-batches"


SMALL = ["plan.sharding=none", "plan.dp=8", "plan.pp=2", "plan.global_batch=64", "plan.micro_batch=1",
         "plan.recompute=full", "plan.zero_stage=1", "cluster.n_devices=16"]  # fmt: skip
SPACE = PlanSpace(
    n_devices=(16,), tp=(1, 2), pp=(1, 2, 4), cp=(1,), ep=(1,), micro_batch=(1, 2), virtual_stages=(1, 2),
    schedule=("1f1b", "1f1b_eager", "gpipe_v"), recompute=("full",), zero_stage=(1,), sharding=("none",),
    sequence_parallel=(0,), overlap_tp=(0,), overlap_dp=(1,), overlap_pp=(0, 1),
)  # fmt: skip


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    with SCHEDULES.with_item(EagerOneFOneB()), SCHEDULES.with_item(VGPipe()):
        yield


@pytest.fixture
def job():
    return stated(load_job("llama2_7b_fsdp_64", [*SMALL, "plan.schedule=1f1b_eager"]))


def test_the_recipe_of_the_documentation_makes_the_same_schedule() -> None:
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    code = text.partition("## A pipeline schedule")[2].partition("```python")[2].partition("```")[0]
    recipe, registered, rest = code.partition("SCHEDULES.add(EagerOneFOneB())")
    assert (registered != "", rest.strip()) == (True, "")
    made: dict[str, Any] = {"__name__": __name__}
    exec(recipe, made)
    for extra in (1, 3):
        order = made["EagerOneFOneB"](extra=extra).lay_out(4, 10, 1)
        assert order == EagerOneFOneB(extra=extra).lay_out(4, 10, 1)


def words(*changes: str) -> list[str]:
    return ["llama2_7b_fsdp_64", *(word for change in (*SMALL, *changes) for word in ("--set", change))]


def test_a_name_is_known_while_it_is_registered_only() -> None:
    assert SCHEDULES.names[-2:] == ("1f1b_eager", "gpipe_v")
    with pytest.raises(PlanError, match="there already"):
        SCHEDULES.add(EagerOneFOneB(extra=5))


def test_the_command_line_shows_it(capsys) -> None:
    assert main(["show", "schedules"]) == 0
    assert "1F1B that runs `extra` more forwards ahead on every stage." in capsys.readouterr().out
    assert main(["show", "schedules", "1f1b_eager", "--json"]) == 0
    assert "one more forward to run" in json.loads(capsys.readouterr().out)["description"]


def test_check_knows_it_and_its_conditions(capsys) -> None:
    assert main(["check", *words("plan.schedule=1f1b_eager"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedule"] == "1f1b_eager"
    assert main(["check", *words("plan.schedule=1f1b_eager", "plan.virtual_stages=2")]) == 2
    assert "1f1b_eager runs 1 model chunk(s) per stage" in capsys.readouterr().err
    odd = words("plan.schedule=gpipe_v", "plan.virtual_stages=2", "plan.global_batch=56")
    assert main(["check", *odd]) == 2
    assert "needs an even number of micro-batches, but pp = 2 and n_micro_batch = 7. Try n_micro_batch=8" in (
        capsys.readouterr().err
    )


def test_predict_knows_it(job, capsys) -> None:
    assert main(["predict", *words("plan.schedule=1f1b_eager"), "--samples", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["schedule"] == "1f1b_eager"
    plain = replace(job, plan=replace(job.plan, schedule="1f1b"))
    assert deterministic(lower(job)) <= deterministic(lower(plain)) * (1 + 1e-6)


def test_an_object_need_not_be_registered(job) -> None:
    far = EagerOneFOneB("1f1b_far", extra=3)
    plan = replace(job.plan, schedule=far)
    check_plan(plan, job.model, job.cluster)
    assert plan == pickle.loads(pickle.dumps(plan))
    assert hash(plan) == hash(replace(job.plan, schedule=EagerOneFOneB("1f1b_far", extra=3)))
    assert plan != replace(job.plan, schedule=EagerOneFOneB("1f1b_far", extra=2))
    named, given = (
        predict(replace(job, plan=replace(job.plan, schedule=own)), key=jax.random.key(0), n_samples=64).samples_s
        for own in ("1f1b_eager", EagerOneFOneB())
    )
    np.testing.assert_array_equal(named, given)


@pytest.mark.parametrize(("name", "virtual_stages"), [("1f1b_eager", 1), ("gpipe_v", 2)])
@pytest.mark.parametrize("n_micro_batch", [2, 4, 10])
def test_memory_counts_along_its_orders(job, name: str, virtual_stages: int, n_micro_batch: int) -> None:
    own, degrees = SCHEDULES.named(name), (4, n_micro_batch, virtual_stages)
    order = make_schedule(name, *degrees)
    assert [own.in_flight(stage, *degrees) for stage in range(4)] == peak_activations(order) == by_hand(order)
    assert [own.logits_held(stage, *degrees) for stage in range(4)] == peak_logits(order)
    if name == "1f1b_eager":
        assert by_hand(order) == [min(4 - stage + 1, n_micro_batch) for stage in range(4)]
    else:
        assert by_hand(order) == [2.0 * n_micro_batch] * 4


def by_hand(order: ScheduleOrder) -> list[float]:
    """Forwards that have started less backwards that have ended, at most."""
    steps = [np.array([1 if op.parts[0].kind == "F" else -1 for op in ops]) for ops in order.orders]
    return [float(np.cumsum(own).max()) for own in steps]


def test_it_holds_more_than_1f1b(job) -> None:
    held = [
        memory(job.model, job.cluster, replace(job.plan, schedule=own)).stages[1].activations_bytes
        for own in ("1f1b", "1f1b_eager")
    ]
    assert held[1] > 1.3 * held[0]


def test_search_takes_the_time_that_predict_says_and_bounds_it(job) -> None:
    evaluator = Evaluator(job, SPACE)
    seen = set()
    for layout in evaluator.layouts:
        table = SPACE.block(job.plan, layout)
        table = table.take(feasibility(table, evaluator.costs)[0] == FEASIBLE)
        if not len(table):
            continue
        seen.add(layout.schedule)
        times = evaluator.step_times(table)
        assert (lower_bound(table_cost(table, evaluator.costs), evaluator.costs.eff.overlap_slowdown) <= times).all()
        own = replace(job, plan=table.plan(0))
        assert times[0] == pytest.approx(deterministic(lower(own, True)), rel=2e-6)
        assert memory(own.model, own.cluster, own.plan).fits
    assert seen == {"1f1b", "1f1b_eager", "gpipe_v"}


@pytest.mark.parametrize("method", [search, local_search])
def test_both_searches_may_choose_it(job, method) -> None:
    only = replace(SPACE, schedule=("1f1b_eager",), pp=(2, 4))
    study = method(job, only, top=2)
    assert {candidate.plan.schedule_name for candidate in study.candidates} == {"1f1b_eager"}
    assert study.best.plan.schedule_name == "1f1b_eager"


def test_a_space_may_hold_objects(job) -> None:
    space = replace(SPACE, schedule=("1f1b", EagerOneFOneB("1f1b_far", extra=3)), pp=(2, 4))
    asked = AskTell(job, space, n_column=64)
    told = {plan.schedule_name for plan in asked.ask(40) if asked.tell(plan) > 0}
    assert told == {"1f1b", "1f1b_far"}


def test_the_command_line_searches_it(tmp_path, capsys) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(
        "schedule: 1f1b_eager\npp: [2]\ntp: [1]\ncp: [1]\nmicro_batch: [1]\nrecompute: full\nsharding: none\n"
    )
    assert main(["search", *words(), "--space", str(file), "--top", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["plan"]["schedule"] == "1f1b_eager"
