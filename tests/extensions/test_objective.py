"""An objective of one's own: one object, added; search, place, the command line and `show` know it."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from prism_jax.job.load_job import load_job
from prism_jax.placement.place import Effort, place
from prism_jax.result.objective import OBJECTIVES, Objective, Outcome
from prism_jax.search.ask_tell import AskTell
from prism_jax.search.exhaustive import search
from prism_jax.search.local_search import local_search
from prism_jax.search.space import PlanSpace
from prism_jax.shell.app import main


def mean_and_spread(outcome: Outcome):
    """Mean plus two standard deviations, seconds."""
    return outcome.samples_s.mean(axis=-1) + 2.0 * outcome.samples_s.std(axis=-1)


def p95_money(outcome: Outcome):
    """Price of a p95 step on all devices."""
    hours = OBJECTIVES.named("p95").of(outcome) / 3600.0 * outcome.known("n_devices")
    return hours * outcome.known("price_per_gpu_hour")


SPREAD = Objective("mean_2sd", "mean step time plus two standard deviations", mean_and_spread)
MONEY = Objective("p95_cost", "price of a p95 step", p95_money, needs=("price_per_gpu_hour",), unit="dollars")
SMALL = ["plan.sharding=none", "plan.dp=16", "plan.global_batch=64", "plan.micro_batch=1", "cluster.n_devices=16"]
SPACE = PlanSpace(
    n_devices=(16,), tp=(1, 2), pp=(1, 2), cp=(1,), ep=(1,), micro_batch=(1, 2), virtual_stages=(1,), recompute=("none", "full"),
    zero_stage=(1,), sequence_parallel=(0,), overlap_tp=(0,), overlap_dp=(0,),
)  # fmt: skip
PLACED = """\
model: {n_layers: 4, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 8000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 8, seq_len: 1024, tp: 8, pp: 2, dp: 2, schedule: 1f1b}
variability: a100-default
"""


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    with OBJECTIVES.with_item(SPREAD), OBJECTIVES.with_item(MONEY):
        yield


@pytest.fixture
def job():
    return load_job("llama2_7b_fsdp_64", [*SMALL, "variability=a100-default"])


def test_search_minimises_it(job):
    study = search(job, SPACE, objective="mean_2sd", top=2)
    assert study.objective.name == "mean_2sd"
    assert "<th>mean_2sd</th>" in study._repr_html_()
    best = study.best
    assert best.p50_s < best.value_s < best.p99_s + 3.0 * (best.p99_s - best.p50_s)
    values = [candidate.value_s for candidate in study.candidates]
    assert values == sorted(values)


def test_the_local_search_and_ask_tell_take_it_too(job):
    study = local_search(job, SPACE, objective=SPREAD, top=1)
    asker = AskTell(job, SPACE, objective="mean_2sd", n_column=64)
    assert asker.tell(study.best.plan) == pytest.approx(study.best.value_s, rel=0.05)


def test_money_is_counted_on_the_devices_of_each_plan(job):
    study = search(job, SPACE, objective="p95_cost", price_per_gpu_hour=2.0, top=2)
    time = search(job, SPACE, objective="p95", top=2)
    assert study.best.plan == time.best.plan
    assert study.best.value_s == pytest.approx(time.best.value_s / 3600.0 * 16 * 2.0)


def test_a_larger_cluster_is_not_chosen_where_it_costs_more(job):
    both = PlanSpace(**{**SPACE.__dict__, "n_devices": (8, 16)})
    fast, cheap = (search(job, both, objective=name, price_per_gpu_hour=2.0, top=2) for name in ("p95", "p95_cost"))
    assert fast.best.plan.n_devices == 16
    assert cheap.best.value_s <= fast.best.p95_s / 3600.0 * 16 * 2.0
    assert cheap.best.plan.n_devices == 8


def test_place_minimises_it(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(PLACED)
    slow = 1.0 + 0.03 * np.random.default_rng(0).gamma(1.0, 1.0, (4, 8))
    effort = Effort(n_random=4, n_step=4, n_relaxed=1, n_fresh=32, n_kept=8)
    result = place(load_job(str(file)), slow, key=jax.random.key(0), objective="mean_2sd", effort=effort)
    assert result.objective.name == "mean_2sd"
    assert "<td>optimised</td>" in result._repr_html_()
    batches = result.batches_s["optimised"]
    assert result.value()[0] == pytest.approx((batches.mean(-1) + 2.0 * batches.std(-1)).mean())


def test_the_command_line_and_show_know_it(capsys):
    assert main(["show", "objectives"]) == 0
    assert "two standard deviations" in capsys.readouterr().out
    assert main(["search", "llama2_7b_fsdp_64", "--objective", "p95_cost"]) == 2
    assert "needs price_per_gpu_hour" in capsys.readouterr().err
