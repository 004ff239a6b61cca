"""Whole groups are left out, each as often as it should be, and what is scored was never fitted (the toy's `score` insists)."""

import sys
from collections import Counter

import jax
import numpy as np
import pandas as pd
import pytest

import inference
from inference import Settings
from inference.engine.model import GroupScore
from inference.engine.program import independent
from inference.fitting.holdout import Holdout, _splits, holdout
from prism_jax.core.errors import DataError, FitError
from tests.inference.engine.toy import N_GROUP, Halves, Toy, exact, readings

KEY = jax.random.key(0)
FEW = Settings(n_approximate_draw=200)
NAMES = np.array([f"g{i}" for i in range(7)])


def left_out(model, frame=None, column: str = "group", method: str = "map", **more) -> Holdout:
    frame = readings(30) if frame is None else frame
    return holdout(
        inference.measured(frame, model), model=model, column=column, key=KEY, method=method, settings=FEW, **more
    )


@pytest.fixture
def quick(monkeypatch):
    """The posterior in closed form, so that only the splits are at work."""

    def posterior(model, data, method, key, **_):
        frame = pd.DataFrame({"reading": data.reading})
        draws = {name: np.full(4, float(law.mean())) for name, law in exact(frame).items()}
        return independent({**draws, "spread": draws["precision"] ** -0.5}, 0.0, np.zeros((4, 2)))

    monkeypatch.setattr(sys.modules["inference.fitting.holdout"], "posterior", posterior)


def test_real_fits_predict_the_groups_that_they_have_not_seen():
    """Mean of 12 readings of a group against the posterior mean of 12 others: sd .7 sqrt(2/12) = .29; five of them."""
    done: list[float] = []
    found = left_out(Toy(), readings(24).assign(group=["a", "b"] * 12), progress=done.append)
    assert [score.group for score in found.scores] in (["a", "b"], ["b", "a"])
    assert done == [0.5, 1.0]
    figures = found.as_dict()
    assert figures["n_fitted"] == 12.0
    assert figures["error"] < 5 * 0.29
    assert figures["coverage_90"] == 1.0
    assert figures["ks"] is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("n_split", [None, 3, N_GROUP, 100])
def test_each_group_is_in_one_fold(n_split):
    found = left_out(Toy(), n_split=n_split)
    assert Counter(score.group for score in found.scores) == {f"g{i}": 1 for i in range(N_GROUP)}
    assert found.n_groups == N_GROUP


@pytest.mark.usefixtures("quick")
def test_one_fold_would_leave_nothing_to_fit():
    with pytest.raises(FitError, match="--splits 1: .* at least 2"):
        left_out(Toy(), n_split=1)


@pytest.mark.usefixtures("quick")
def test_halves_leave_half_the_groups_out_every_time():
    found = left_out(Halves(), n_split=4)
    assert len(found.scores) == 4 * (N_GROUP // 2)
    for i in range(4):
        assert len({score.group for score in found.scores[3 * i : 3 * i + 3]}) == 3


def test_halves_differ_and_repeat():
    splits = [tuple(sorted(out)) for out in _splits("halves", NAMES, 20, KEY)]
    assert splits == [tuple(sorted(out)) for out in _splits("halves", NAMES, 20, KEY)]
    assert {len(out) for out in splits} == {3}
    assert len(set(splits)) > 5
    assert len(list(_splits("halves", NAMES, None, KEY))) == 20


@pytest.mark.parametrize("n_group", [2, 7, 20, 45])
def test_folds_are_as_even_as_can_be(n_group):
    names = np.array([f"g{i}" for i in range(n_group)])
    folds = list(_splits("folds", names, None, KEY))
    assert len(folds) == min(20, n_group)
    assert sorted(np.concatenate(folds)) == sorted(names)
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.usefixtures("quick")
def test_rows_of_no_group_are_neither_fitted_nor_scored():
    """They might belong to any group that is left out."""
    frame = readings(30)
    frame.loc[::5, "group"] = None
    found = left_out(Toy(), frame)
    assert len(found.scores) == N_GROUP
    assert max(score.extra["n_fitted"] for score in found.scores) < 24


@pytest.mark.usefixtures("quick")
def test_a_column_goes_by_its_aliases():
    assert left_out(Toy(), column="team").n_groups == N_GROUP


@pytest.mark.usefixtures("quick")
def test_an_unknown_column_gets_a_hint():
    with pytest.raises(DataError, match=r"--holdout groop: no such column.*did you mean group"):
        left_out(Toy(), column="groop")


@pytest.mark.usefixtures("quick")
def test_one_group_is_too_few():
    with pytest.raises(DataError, match="1 group, but at least 2"):
        left_out(Toy(), readings(30).assign(group="only"))


@pytest.mark.usefixtures("quick")
def test_no_splits_are_refused():
    with pytest.raises(FitError, match="--splits 0"):
        left_out(Toy(), n_split=0)


def test_medians_leave_out_what_is_not_known():
    scores = (GroupScore("a", ks=0.1, extra={"own": 1.0}), GroupScore("b", ks=0.3), GroupScore("c", coverage_90=0.5))
    found = Holdout("group", 3, scores).as_dict()
    assert found["ks"] == pytest.approx(0.2)
    assert found["own"] == 1.0
    assert found["coverage_90"] == 0.5
    assert found["ks_empirical"] is None
    assert (found["n_groups"], found["n_scores"]) == (3, 3)
