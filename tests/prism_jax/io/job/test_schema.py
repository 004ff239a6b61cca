"""The schema follows the core dataclasses."""

from dataclasses import fields

import pytest
from pydantic import ValidationError

from prism_jax.core.registry import ELSEWHERE, did_you_mean
from prism_jax.job import schema
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.hardware import Device
from prism_jax.system.network import Tier
from prism_jax.workload.transformer.spec import TransformerSpec


@pytest.mark.parametrize(
    ("section", "cls", "rename"),
    [
        (schema.plan_section(), ParallelPlan, {}),
        (schema.model_section(TransformerSpec, False), TransformerSpec, {}),
        (schema.device_section(False), Device, schema.DEVICE_NAMES),
        (schema.tier_section(False), Tier, schema.TIER_NAMES),
    ],
)
def test_every_field_of_the_dataclass_can_be_written(section, cls, rename):
    written = {rename.get(item.name, item.name) for item in fields(cls)} - {
        "like",  # read apart: what the others change
        "software",  # a section of its own
    }
    assert set(section.model_fields) == written


def test_special_types_name_fields_that_exist():
    for cls in (TransformerSpec, Device, Tier):
        assert set(schema._SPECIAL[cls.__name__]) <= {item.name for item in fields(cls)}


@pytest.mark.parametrize("value", [True, "8", 8.0, 0, -1, None, [8]])
def test_counts_are_not_guessed_from_other_types(value):
    needed = {"micro_batch": 1, "global_batch": 1, "seq_len": 1}
    assert schema.plan_section().model_validate(needed | {"tp": 8})
    with pytest.raises(ValidationError):
        schema.plan_section().model_validate(needed | {"tp": value})


def test_names_of_other_tools_lead_to_ours():
    known = (
        set(schema.plan_section().model_fields)
        | set(schema.model_section(TransformerSpec, True).model_fields)
        | {"n_devices"}
        | {f"state_dtypes.{item.name}" for item in fields(StateDtypes)}
        | {
            f"{name}.{item.name}"
            for name in ("moe", "window")
            for item in fields(schema.nested_types(TransformerSpec)[name])
        }
    )
    assert set(ELSEWHERE.values()) <= known
    assert did_you_mean("tensor_model_parallel_size", ["tp", "pp"]) == ", did you mean tp?"
    assert did_you_mean("sliding_window", ["window"]) == ", did you mean window.size?"
    assert did_you_mean("--grad-reduce-in-bf16", ["state_dtypes"]) == ", did you mean state_dtypes.grad_reduce?"
    assert did_you_mean("Micro_Batch_Size", ["micro_batch"]) == ", did you mean micro_batch?"
    assert did_you_mean("zzz", ["tp"]) == "; known are tp"
    assert did_you_mean("zzz", ["tp"], otherwise="") == ""
