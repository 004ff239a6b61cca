"""`prism-jax show`: every catalogue can be listed, every entry opened, in text and JSON."""

import json

import pytest

from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.schedule.registry import SCHEDULES
from prism_jax.shell.app import main
from prism_jax.show.catalogues import CATALOGUES
from prism_jax.show.report import readable


@pytest.mark.parametrize("kind", list(CATALOGUES))
def test_every_catalogue_is_listed(kind, capsys):
    assert main(["show", kind]) == 0
    out = capsys.readouterr().out
    for name in CATALOGUES[kind]().names:
        assert name in out


@pytest.mark.parametrize("kind", list(CATALOGUES))
def test_every_entry_opens_as_json(kind, capsys):
    assert main(["show", kind, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == list(CATALOGUES[kind]().names)


@pytest.mark.parametrize("kind", [kind for kind in CATALOGUES if CATALOGUES[kind]().names])
def test_one_entry_is_shown_with_all_its_facts(kind, capsys):
    name = CATALOGUES[kind]().names[0]
    assert main(["show", kind, name]) == 0
    assert name in capsys.readouterr().out
    assert main(["show", kind, name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name


@pytest.mark.parametrize("kind", list(CATALOGUES))
def test_unknown_name_gets_a_remedy_and_exit_2(kind, capsys):
    assert main(["show", kind, "zzzzz"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "unknown" in captured.err


def test_help_names_every_catalogue(capsys):
    assert main(["show", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(kind in printed for kind in CATALOGUES)


def test_unknown_kind_gets_a_hint(capsys):
    assert main(["show", "model"]) == 2
    assert "unknown kind 'model', did you mean models?" in capsys.readouterr().err


def test_all_schedules_of_a_plan_are_in_the_catalogue():
    assert set(CATALOGUES["schedules"]().names) == set(SCHEDULES.names)


def test_every_framework_that_a_job_may_name_is_in_the_catalogue():
    assert set(CATALOGUES["frameworks"]().names) == set(FRAMEWORKS.names)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gpt3-175b", {"n_kv_heads": 96, "head_dim": 128, "qkv_bias": True}),
        ("deepseek-v3", {"n_kv_heads": 128, "head_dim": None, "layer_kinds": {"dense_layer": 3, "moe_layer": 58}}),
        ("gemma-3-27b", {"layer_kinds": {"sliding_dense_layer": 52, "dense_layer": 10}}),
    ],
)
def test_a_model_is_shown_with_what_its_defaults_stand_for(name, facts, capsys):
    assert main(["show", "models", name, "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert entry | facts == entry
    assert (entry["moe"] or {}).get("shared_ffn_hidden") == (2048 if name == "deepseek-v3" else None)


def test_facts_carry_their_units():
    entry = {
        "name": "x",
        "hbm_bytes": 80 * 2**30,
        "peak": {"peak_flops_per_s": 1e15},
        "tiers": [{"latency_s": 2e-6}],
        "empty": "",
    }
    expected = {"hbm_bytes": "80 GiB", "peak.peak_flops_per_s": "1 PFLOP/s", "tiers.0.latency_s": "2 us"}
    assert readable(entry) == expected
