"""Blank virtual stages follow the rows of the same recipe, and only where these agree."""

from dataclasses import replace

from experiments.step_tables.assumed import fill_virtual_stages
from experiments.step_tables.records import StepRecord

STATED = StepRecord(
    id="a", source="mlcommons/training_results_v3.0", model_name="GPT3", gpu="H100", n_layers=96,
    micro_batch=1, tp=4, pp=8, vpp=12
)  # fmt: skip
BLANK = replace(STATED, id="b", source="mlcommons/training_results_v3.1", vpp=None, n_gpus=8192, global_batch=4096)


def filled(*records: StepRecord) -> list[int | None]:
    return [record.vpp for record in fill_virtual_stages(records)]


def test_the_value_of_the_same_recipe_is_taken_across_versions_and_sizes():
    assert filled(BLANK, STATED) == [12, 12]
    assert fill_virtual_stages([BLANK, STATED])[0] == replace(BLANK, vpp=12)


def test_other_recipes_say_nothing():
    for change in (
        {"pp": 6},
        {"tp": 8},
        {"gpu": "B200"},
        {"micro_batch": 2},
        {"model_name": "x"},
        {"n_layers": 48},
        {"cp": 2},
    ):
        assert filled(BLANK, replace(STATED, **change)) == [None, 12]
    assert filled(BLANK, replace(STATED, source="someone else v3.0")) == [None, 12]


def test_siblings_that_disagree_say_nothing():
    assert filled(BLANK, STATED, replace(STATED, vpp=6)) == [None, 12, 6]


def test_rows_without_a_pipeline_stay_as_they_are():
    assert filled(replace(BLANK, pp=1), replace(STATED, pp=1)) == [None, 12]
