"""Reliability files: what they say, and one line for what is wrong in them: where, which field, what, remedy."""

import pytest

from prism_jax.core.errors import ConfigError, SpecError
from prism_jax.horizon.reliability_file import load_reliability, preset

GOOD = """\
name: mine
observed: {n_gpus: 1000, node_size: 8, hours: 500}
hazards:
  - {cause: GPU, events: 25, per: gpu, repair: 2 h, repair_log_sd: 1}
  - {cause: hang, per_job_h: 0.01, nodes_lost: 0, noticed: 30 min, log_sd: 0.5}
slow_phases:
  - {cause: hot, events: 4, per: node, slowdown: 1.2, duration: 1 h}
"""


def test_counts_become_rates_that_know_how_well_they_are_known(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD)
    found = load_reliability(file)
    gpu, hang = found.hazards
    assert (gpu.per_gpu_h, gpu.log_sd, gpu.repair_s) == pytest.approx((25 / 5e5, 0.2, 7200.0))
    assert (hang.per_job_h, hang.log_sd, hang.noticed_s) == pytest.approx((0.01, 0.5, 1800.0))
    assert found.slow_phases[0].per_node_h == pytest.approx(4 / (125 * 500))
    assert found.name == "mine"


def test_presets_are_found_by_name():
    assert load_reliability("Llama3_2024") == preset("llama3-2024")


WRONG = {
    "hazards: [{cause: x, per_gpu_h: -1}]": "per_gpu_h: -1, but it must be at least 0",
    "hazards: [{cause: x, per_gpu_h: .nan}]": "nan, but it must be a finite number",
    "hazards: [{cause: x, per_gpu_h: '1'}]": "must be a finite number",
    "hazards: [{cause: x, per_gpu_h: true}]": "must be a finite number",
    "hazards: [{cause: x}]": "has no rate. Write one of per_gpu_h",
    "hazards: [{per_gpu_h: 1}]": "cause: is missing",
    "hazards: [{cause: '', per_gpu_h: 1}]": "must be a text",
    "hazards: [{cause: x, per_gpu_hour: 1}]": "unknown field, did you mean per_gpu_h?",
    "hazards: [{cause: x, per_job_h: 1, shape: 0}]": "must be from 0.2 to 20",
    "hazards: [{cause: x, per_job_h: 1, repair: 3}]": "has no unit",
    "hazards: [{cause: x, per_job_h: 1, noticed: -3 min}]": "out of range",
    "hazards: [{cause: x, per_job_h: 1, repair: 3 GB}]": "is a unit of memory",
    "hazards: [{cause: x, events: 3, per: gpu}]": "needs the section observed",
    "hazards: [{cause: x, events: 3}]": "per: is missing",
    "hazards: [{cause: x, per: gpu}]": "events: is missing",
    "observed: {n_gpus: 8, node_size: 8, hours: 9}\nhazards: [{cause: x, events: 0, per: gpu}]": "must be above 0",
    "observed: {n_gpus: 8, node_size: 8, hours: 9}\nhazards: [{cause: x, events: 1, per: gpus}]": "did you mean gpu?",
    "observed: {n_gpus: 8, node_size: 8, hours: 9}\nhazards: [{cause: x, events: 1, per: gpu, per_gpu_h: 1}]": "Keep one",
    "observed: {n_gpus: 0, node_size: 8, hours: 9}\nhazards: []": "n_gpus: 0, but it must be above 0",
    "observed: {n_gpus: 8, hours: 9}\nhazards: []": "node_size: is missing",
    "hazards: []": "State at least one cause",
    "hazards: 3": "must be a list",
    "hazards: [3]": "must be a mapping",
    "hazards: [{cause: x, per_job_h: 1}, {cause: x, per_job_h: 1}]": "x: stated twice",
    "hazard: []": "unknown field, did you mean hazards?",
    "slow_phases: [{cause: x, per_job_h: 1, slowdown: 0.5}]": "slowdown: 0.5, but it must be at least 1",
    "[]": "",
    "hazards: [": "",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_are_named_with_their_place(text: str, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_reliability(file)
    assert WRONG[text] in str(error.value)
    assert str(error.value).startswith(str(file))


def test_toml_is_read_too(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('hazards = [{ cause = "x", per_job_h = 0.1 }]')
    assert load_reliability(file).rate_h(8, 8) == pytest.approx(0.1)
    file.write_text('hazards = [{ cause = "x", per_job_h = -0.1 }]')
    with pytest.raises(ConfigError, match="at least 0"):
        load_reliability(file)


def test_unknown_names_get_a_hint():
    with pytest.raises(SpecError, match=r"Did you mean llama3-2024\? Or name a YAML or TOML file"):
        load_reliability("llama3")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_reliability("nothing.yaml")


MANY = """\
observed: {n_gpus: 0, node_size: x, hour: 3}
name: 7
hazards:
  - {cause: GPU, events: 3, per: gpus, repair: 2 GB, nodes_lost: -1, shape: 0, log_sd: -2}
  - {per_gpu_h: .nan, colour: red, nodes_lost: -1}
  - 3
  - {cause: same, per_job_h: 1}
slow_phases:
  - {cause: same, per_job_h: 1}
  - {cause: hot, events: 4, per: node, slowdown: 0.5, duration: soon}
"""


def test_all_mistakes_are_reported_in_the_order_of_the_file(tmp_path):
    file = tmp_path / "many.yaml"
    file.write_text(MANY)
    with pytest.raises(ConfigError) as error:
        load_reliability(file)
    found = [
        (mistake.mark.line if mistake.mark else 0, ".".join(map(str, mistake.path))) for mistake in error.value.mistakes
    ]
    assert found == sorted(found, key=lambda one: one[0])
    assert sorted(found) == sorted(
        [
            *((1, f"observed.{name}") for name in ("n_gpus", "node_size", "hours", "hour")),
            (2, "name"),
            (3, "hazards"),  # same: stated twice
            *((4, f"hazards.0.{name}") for name in ("per", "repair", "nodes_lost", "shape", "log_sd")),
            *((5, f"hazards.1.{name}") for name in ("cause", "per_gpu_h", "colour", "nodes_lost")),
            (6, "hazards.2"),
            *((10, f"slow_phases.1.{name}") for name in ("slowdown", "duration")),
        ]
    )


def test_a_list_is_told_what_a_reliability_is(tmp_path):
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(
        ConfigError, match=r"list.yaml:1:1: a reliability is a mapping of fields \(hazards, slow_phases\), not a list"
    ):
        load_reliability(tmp_path / "list.yaml")
