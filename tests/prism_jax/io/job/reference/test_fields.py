"""The reference of job files: the fields that the schema accepts, all of them and no others, each with its words."""

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.job.cluster_section import written_names
from prism_jax.job.field_descriptions import ABOUT, FORMS
from prism_jax.job.load_job import job_sections, load_job
from prism_jax.job.reference import CLASS, NEEDED, job_fields, quantity_of
from prism_jax.job.schema import cluster_section, device_section, model_section, plan_section, tier_section
from prism_jax.system.network_kinds import NETWORKS
from prism_jax.variability.config import section_fields
from prism_jax.variability.tree import PARTS
from prism_jax.workload.transformer.spec import TransformerSpec

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
        ("plan", plan_section()),
        ("model", model_section(TransformerSpec, False)),
        ("cluster", cluster_section()),
        ("cluster.device", device_section(False)),
        ("cluster.tiers", tier_section(False)),
    ],
)
def test_the_reference_has_every_field_of_the_schema(path, section):
    front = f"{path}." if path else ""
    assert {front + name for name in section.model_fields} <= set(NAMES)


def test_the_reference_has_every_field_of_a_variability():
    classes = [name for name in section_fields() if f"variability.{name}" not in NAMES]
    assert {"gemm", "all_reduce"} <= set(classes)
    assert {f"variability.{CLASS}.{part}" for part in PARTS} <= set(NAMES)


ELSEWHERE = ("cluster.tiers", "model.kind")  # a list; a model without a preset
OVERRIDDEN = [field.name for field in FIELDS if not field.name.startswith(ELSEWHERE)]


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
    assert quantity_of(tier_section(False).model_fields["bandwidth"]) == "bandwidth"
    assert quantity_of(device_section(True).model_fields["peak"]) == "compute rate"
    assert quantity_of(plan_section().model_fields["tp"]) is None
    by_name = {field.name: field for field in FIELDS}
    assert by_name["cluster.device.hbm"].takes == "memory (80 GiB)"
    assert by_name["plan.dp"].takes == "whole number from 1 or auto"
    assert by_name["plan.zero_stage"].takes == "whole number from 0 to 3"
    assert by_name["model.window.pattern"].takes == "list: one of full, sliding, chunked"
    assert all(written_names(kind) is not None for kind in NETWORKS)
