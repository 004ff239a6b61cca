"""Columns that the host draws are those that the device draws; programs do not know how many there are."""

import jax
import numpy as np
import pytest

from prism_jax.core.processes import silent
from prism_jax.graph import draws
from prism_jax.graph.draws import folded, host_key, normals, seed_of, typed_key
from prism_jax.simulate import columns, predict
from prism_jax.simulate.batches import alike
from prism_jax.simulate.columns import Chunk, _compiled, column_times
from prism_jax.simulate.inputs import column_inputs, regime_factors
from prism_jax.simulate.predict import REGIME_SCORES, replica_columns, replica_maxima
from prism_jax.simulate.program import lower
from prism_jax.variability.families import LogNormal, Normal, StudentT
from prism_jax.variability.tree import ClassVariability, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_job, make_program

KEY = jax.random.key(5)
HEAVY = {"gemm": ClassVariability(gpu=LogNormal(0.03), node=LogNormal(0.01), call=StudentT(0.05, 3.0))}
TREES = {
    "everything": EVERYTHING,
    "heavy calls": Variability("t", HEAVY),
    "no calls": Variability("t", compute_varies(gpu=LogNormal(0.03))),
    "calls alone": Variability("t", compute_varies(call=Normal(0.03))),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("tp", [2, 20])
def test_the_host_draws_what_the_device_draws(tree: str, tp: int) -> None:
    """Members of small groups, tables of large ones; float32 on both sides, by other orders of sums."""
    program = make_program(TREES[tree], tp=tp)
    columns = replica_columns(program, KEY, 128)
    arguments = columns.inputs, KEY, columns.chunks, columns.width
    np.testing.assert_allclose(column_times(*arguments), column_times(*arguments, drawn_on_device=True), rtol=1e-4)


def test_known_gpus_and_fleets_are_the_same_on_both_sides() -> None:
    program = make_program(EVERYTHING)
    inputs = column_inputs(program, regime_factors(program, np.zeros(1)), explicit=True)
    known = np.full((5, len(program.gpu), program.n_member, program.n_lane, 32), np.nan, np.float32)
    known[:, :, 1, 0] = 1.5
    chunks = Chunk(np.arange(5), None, np.full((5, 6, 32), 1.1, np.float32), known, np.arange(5) // 2)
    times = column_times(inputs, KEY, chunks, 32)
    np.testing.assert_allclose(times, column_times(inputs, KEY, chunks, 32, drawn_on_device=True), rtol=1e-4)
    assert times.shape == (5, 1, 32)


def test_programs_know_neither_members_of_large_groups_nor_columns() -> None:
    """Two groups of other sizes, and another number of columns: nothing more to compile."""
    compiled = _compiled(1 << (len(jax.devices()).bit_length() - 1), 1, None, jax.default_backend())
    sizes = []
    for tp, n_samples in ((20, 1024), (24, 1024), (24, 4096)):
        columns = replica_columns(make_program(EVERYTHING, tp=tp), KEY, n_samples)
        column_times(columns.inputs, KEY, columns.chunks, columns.width)
        sizes.append(compiled._cache_size())
    assert sizes[0] == sizes[-1]


def test_all_scores_share_the_columns() -> None:
    """One score alone gives the times that it has among several."""
    program = make_program(EVERYTHING)
    columns = replica_columns(program, KEY, 128)
    every = column_times(columns.inputs, KEY, columns.chunks, columns.width)
    alone = column_inputs(program, regime_factors(program, REGIME_SCORES[1:2]))
    np.testing.assert_allclose(column_times(alone, KEY, columns.chunks, columns.width)[:, 0], every[:, 1], rtol=1e-5)


def test_seeds_and_keys_are_those_of_jax() -> None:
    for seed in range(20):
        key = typed_key(seed)
        assert seed_of(key) == int(jax.random.randint(jax.random.key(seed), (), 0, 1 << 30, np.int32))
        assert folded(key, seed, 3) == jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), seed), 3)
    np.testing.assert_array_equal(host_key(typed_key(host_key(KEY))), jax.random.key_data(KEY))


# --- As on an accelerator: the same program, told that it is not on a processor ----------------------------------------


@pytest.fixture
def accelerated(monkeypatch):
    """Runs columns as on an accelerator; random words keep the order of a processor, which compiles sooner so."""
    return lambda: monkeypatch.setattr(columns, "on_accelerator", lambda: True)


@pytest.mark.parametrize("tp", [2, 20])
def test_an_accelerator_takes_all_chunks_at_once_and_gives_the_same_bits(tp: int, accelerated) -> None:
    program = make_program(EVERYTHING, tp=tp)
    inputs, chunks = column_inputs(program, regime_factors(program, np.zeros(1))), Chunk(np.arange(3))
    one_by_one = column_times(inputs, KEY, chunks, 32, drawn_on_device=True)
    accelerated()
    together = column_times(inputs, KEY, chunks, 32)
    assert one_by_one.shape == (3, 1, 32)
    np.testing.assert_array_equal(one_by_one, together)


@pytest.mark.parametrize("most", [1 << 19, 64])
def test_jobs_side_by_side_give_the_bits_of_each_alone(most: int, accelerated, monkeypatch) -> None:
    """Spreads and numbers of micro-batches, so of levels, differ; a call takes all jobs, or one."""
    accelerated()
    monkeypatch.setattr(columns, "COLUMNS_PER_CALL", most)
    spreads = zip((0.5, 0.9, 1.3), (4, 8, 5), strict=True)
    tree = TREES["heavy calls"]
    jobs = [make_job(tree.scaled(spread), tp=2, pp=2, dp=4, n_micro_batch=n) for spread, n in spreads]
    inputs = [column_inputs(program, np.ones((1, 6))) for program in alike([lower(job, True) for job in jobs])]
    calls, original = [], columns._compiled

    def counted(*how, **more):
        run = original(*how, **more)
        return lambda *arguments: calls.append(how) or run(*arguments)

    monkeypatch.setattr(columns, "_compiled", counted)
    together = [*columns.times_of_jobs(inputs, KEY, [Chunk(np.arange(2))] * len(jobs), 32)]
    assert len(calls) == {1 << 19: 1, 64: 3}[most]
    for one, times_s in zip(inputs, together, strict=True):
        (alone,) = columns.times_of_jobs([one], KEY, [Chunk(np.arange(2))], 32)
        np.testing.assert_array_equal(times_s, alone)
    assert len({float(times_s.mean()) for times_s in together}) == len(jobs)


def test_a_static_number_of_levels_leaves_every_bit() -> None:
    """Idle levels change nothing, however many there are; nor does it matter who counts them."""
    inputs = column_inputs(lower(make_job(EVERYTHING, tp=2, pp=2, dp=4, n_micro_batch=20), True), np.ones((1, 6)))
    counted, n_used = column_times(inputs, KEY, Chunk(np.arange(2)), 32, drawn_on_device=True), inputs.graph.n_used
    assert n_used is not None
    assert columns.with_static_levels(inputs, 40).graph.compute_s.shape[0] == 48
    for n_level in (int(n_used), 64):
        fixed = columns.with_static_levels(inputs, n_level)
        np.testing.assert_array_equal(column_times(fixed, KEY, Chunk(np.arange(2)), 32, drawn_on_device=True), counted)


def test_random_words_stand_in_no_order_on_an_accelerator(monkeypatch) -> None:
    """A processor makes them before they are used; an accelerator may make them where they are used."""

    def written() -> str:
        return str(jax.make_jaxpr(lambda key: normals(key, 2, 3, 4))(host_key(KEY)))

    assert written().count("optimization_barrier") == 2
    monkeypatch.setattr(draws, "on_accelerator", lambda: True)
    assert "optimization_barrier" not in written()


def test_an_accelerator_keeps_the_slowest_replicas_of_several_calls(accelerated, monkeypatch) -> None:
    """Three calls of one chunk each; steps are spread over two chunks, and what is left of the last chunk belongs to none."""
    program, steps_u = make_program(TREES["heavy calls"], dp=3), np.random.default_rng(0).random((200, 1))
    on_host = replica_maxima(program, KEY, steps_u, None, silent, True)
    accelerated()
    kept: list[jax.Array] = []
    monkeypatch.setattr(predict, "gathered", lambda times: kept.append(times) or columns.gathered(times))
    monkeypatch.setattr(predict, "chunks_per_call", lambda n_column: 1)
    np.testing.assert_array_equal(replica_maxima(program, KEY, steps_u, None, silent, True), on_host)
    assert [times.shape for times in kept] == [(1, 200)]
