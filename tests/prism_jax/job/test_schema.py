"""The schema of job files and its reference follow the core dataclasses."""

from dataclasses import fields

import pytest
from pydantic import ValidationError

from prism_jax.core.errors import ConfigError
from prism_jax.core.registry import ELSEWHERE, did_you_mean
from prism_jax.framework.software import Software
from prism_jax.job import schema
from prism_jax.job.cluster_section import written_names
from prism_jax.job.field_descriptions import ABOUT, FORMS
from prism_jax.job.load_job import job_sections, load_job
from prism_jax.job.reference import CLASS, NEEDED, job_fields, quantity_of
from prism_jax.job.rules import ATTENTION
from prism_jax.job.schema import cluster_section, section_of
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.hardware import Device
from prism_jax.system.network import Tier
from prism_jax.system.network_kinds import NETWORKS
from prism_jax.variability.config import section_fields
from prism_jax.variability.tree import PARTS
from prism_jax.workload.transformer.spec import TransformerSpec


@pytest.mark.parametrize(
    ("section", "cls", "rename"),
    [
        (section_of(ParallelPlan), ParallelPlan, {}),
        (section_of(TransformerSpec), TransformerSpec, {}),
        (section_of(Device), Device, schema.DEVICE_NAMES),
        (section_of(Tier), Tier, schema.TIER_NAMES),
    ],
)
def test_every_field_of_the_dataclass_can_be_written(section, cls, rename):
    written = {rename.get(item.name, item.name) for item in fields(cls)} - {
        "like",  # read apart: what the others change
        "software",  # sections of their own
        "data",
    }
    assert set(section.model_fields) == written


def test_special_types_name_fields_that_exist():
    for cls in (TransformerSpec, Device, Tier):
        assert set(schema._SPECIAL[cls.__name__]) <= {item.name for item in fields(cls)}


@pytest.mark.parametrize("value", [True, "8", 8.0, 0, -1, None, [8]])
def test_counts_are_not_guessed_from_other_types(value):
    needed = {"micro_batch": 1, "global_batch": 1, "seq_len": 1}
    assert section_of(ParallelPlan).model_validate(needed | {"tp": 8})
    with pytest.raises(ValidationError):
        section_of(ParallelPlan).model_validate(needed | {"tp": value})


def test_names_of_other_tools_lead_to_ours():
    known = (
        set(section_of(ParallelPlan).model_fields)
        | set(section_of(TransformerSpec, True).model_fields)
        | set(section_of(Software).model_fields)
        | {"n_devices", "host_memory", *ATTENTION}
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


# --- Fields ----------------------------------------------------------------------------------------------------------
# The reference of job files: the fields that the schema accepts, all of them and no others, each with its words.


FIELDS = job_fields()
NAMES = [field.name for field in FIELDS]
JOB = """\
model: {preset: deepseek-v3, window: {size: 4096}}
cluster: {preset: dgx-h100, device: {preset: h100-sxm}}
plan: {micro_batch: 1, global_batch: 8, seq_len: 1024, dp: 8}
variability: {preset: h100-default, stalls: [{gpu_prob: 0}]}
"""


def test_every_field_has_words_and_no_words_lack_a_field():
    assert set(ABOUT) <= set(NAMES)
    assert not [name for name in ABOUT if name.startswith("plan.")]  # the plan says it beside its fields
    assert set(FORMS) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)
    assert all(field.about and field.takes for field in FIELDS)


@pytest.mark.parametrize(
    ("path", "section"),
    [
        ("", job_sections()),
        ("plan", section_of(ParallelPlan)),
        ("model", section_of(TransformerSpec)),
        ("cluster", cluster_section()),
        ("cluster.device", section_of(Device)),
        ("cluster.tiers", section_of(Tier)),
    ],
)
def test_the_reference_has_every_field_of_the_schema(path, section):
    front = f"{path}." if path else ""
    assert {front + name for name in section.model_fields} <= set(NAMES)


def test_the_reference_has_every_field_of_a_variability():
    classes = [name for name in section_fields() if f"variability.{name}" not in NAMES]
    assert {"gemm", "all_reduce"} <= set(classes)
    assert {f"variability.{CLASS}.{part}" for part in PARTS} <= set(NAMES)


FIELDS_ELSEWHERE = ("cluster.tiers", "model.kind")  # a list; a model without a preset
OVERRIDDEN = [field.name for field in FIELDS if not field.name.startswith(FIELDS_ELSEWHERE)]


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_no_field_of_the_reference_is_unknown_to_the_reader(name, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    path = name.replace(CLASS, "gemm").replace("stalls.", "stalls.0.")
    for override in (f"{path}=[[]]", f"{path}={{}}"):
        try:
            load_job(file, [override])
        except ConfigError as error:
            assert f"{override}: unknown field" not in str(error)
    with pytest.raises(ConfigError, match="unknown field"):
        load_job(file, [f"{path}x=[[]]"])


def test_needed_fields_are_those_that_a_file_must_have(tmp_path):
    needed = {field.name for field in FIELDS if field.default is NEEDED}
    assert {"model", "cluster", "plan", "plan.micro_batch", "model.hidden", "cluster.device.hbm"} <= needed
    assert not {"name", "plan.tp", "model.name", "cluster.device.source"} & needed
    (tmp_path / "job.yaml").write_text("model: {vocab: 5}\ncluster: {device: {n_sm: 5}}\nplan: {tp: 1}\n")
    with pytest.raises(ConfigError) as error:
        load_job(tmp_path / "job.yaml")
    missing = {line.split()[1].rstrip(":") for line in str(error.value).splitlines() if line.endswith("is missing")}
    given = {"model", "cluster", "plan", "model.vocab", "cluster.device.n_sm"}
    inside = ("model.moe.", "model.mla.", "model.window.", "model.adapters.", "model.mixer.", "cluster.tiers.")
    assert missing - {"plan.seq_len"} == {name for name in needed - given if not name.startswith(inside)}


def test_quantities_are_known_by_their_unit():
    assert quantity_of(section_of(Tier).model_fields["bandwidth"]) == "bandwidth"
    assert quantity_of(section_of(Device, True).model_fields["peak"]) == "compute rate"
    assert quantity_of(section_of(ParallelPlan).model_fields["tp"]) is None
    by_name = {field.name: field for field in FIELDS}
    assert by_name["cluster.device.hbm"].takes == "memory (80 GiB)"
    assert by_name["plan.dp"].takes == "whole number from 1 or auto"
    assert by_name["plan.zero_stage"].takes == "whole number from 0 to 3"
    assert by_name["model.window.pattern"].takes == "list: one of full, sliding, chunked"
    assert all(written_names(kind) is not None for kind in NETWORKS)


def test_a_section_is_one_however_it_is_asked_for() -> None:
    assert section_of(Tier) is section_of(Tier, False) is section_of(Tier, partial=False)
    assert section_of(Tier, True) is section_of(Tier, partial=True) is not section_of(Tier)
