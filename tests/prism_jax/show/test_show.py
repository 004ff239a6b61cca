"""`prism-jax show`: catalogues, entries, and sections to paste into a job file."""

import json

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.schedule.registry import SCHEDULES
from prism_jax.shell.app import main
from prism_jax.show.catalogues import CATALOGUES
from prism_jax.show.report import readable
from prism_jax.show.show import job_section
from prism_jax.system import catalog
from prism_jax.tables.streams import example_files
from prism_jax.variability.config import preset, preset_names
from prism_jax.workload.catalog import workload, workload_names


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


# --- Job section -----------------------------------------------------------------------------------------------------
# `show KIND NAME --yaml`: what is printed can be pasted into a job file, and describes exactly what is shipped.


TIERS = (
    "  tiers: [{name: net, bandwidth: 50 GB/s, latency: 1 us}]\n"  # for devices that no reference cluster is built of
)
SECTIONS = {
    "model": "model: llama-2-7b\n",
    "cluster": "cluster: dgx-h100\n",
    "variability": "variability: none\n",
    "plan": "plan: {micro_batch: 1, global_batch: 64, seq_len: 1024, dp: %d, dtype: %s}\n",
}


@pytest.fixture
def load(tmp_path):
    """The job of a file with `section` in place of the one of that name."""

    def job(section: str, text: str, n_devices: int = 1, device: str = "h100-sxm", reads_sequences: bool = True) -> Job:
        file = tmp_path / "job.yaml"
        dtype = next(name for name in ("bf16", "fp16", "fp32") if name in catalog.device(device).peak_flops_per_s)
        plan = SECTIONS["plan"] % (n_devices, dtype)
        plan = plan if reads_sequences else plan.replace("seq_len: 1024, ", "")
        file.write_text(text + plan + "".join(t for name, t in SECTIONS.items() if name not in (section, "plan")))
        return load_job(str(file))

    return job


@pytest.mark.parametrize("name", workload_names())
def test_a_model_reads_back_equal(load, name):
    model = workload(name)
    refused = {problem.field for problem in model.problems(ParallelPlan(1, 64, 1024, dp=1))}
    assert load("model", job_section("models", name), reads_sequences="seq_len" not in refused).model == model


@pytest.mark.parametrize("name", catalog.cluster_names())
@pytest.mark.parametrize("n_devices", [1, 8, 64])
def test_a_cluster_reads_back_equal_at_any_size(load, name, n_devices):
    expected = catalog.cluster(name, n_devices)
    assert load("cluster", job_section("clusters", name), n_devices, expected.device.name).cluster == expected


@pytest.mark.parametrize("name", catalog.device_names())
def test_a_device_reads_back_equal(load, name):
    text = job_section("devices", name)
    try:
        catalog.default_cluster(name, 1)
    except SpecError:
        text += TIERS
    assert load("cluster", text, device=name).cluster.device == catalog.device(name)


@pytest.mark.parametrize("name", preset_names())
def test_a_variability_reads_back_equal(load, name):
    assert load("variability", job_section("variability", name)).variability == preset(name)


@pytest.mark.parametrize("name", example_files())
def test_an_example_is_the_file_itself(name, tmp_path):
    (tmp_path / f"{name}.yaml").write_text(job_section("examples", name))
    assert load_job(tmp_path / f"{name}.yaml") == load_job(name)


def test_a_section_uses_the_names_and_units_of_job_files():
    text = job_section("clusters", "dgx-h100")
    for written in ("bandwidth: 450 GB/s", "latency: 4 us", "hbm: 81559 MiB", "bf16: 989.4 TFLOP/s", "power: 700 W"):
        assert written in text
    assert "_per_s" not in text
    assert "n_devices: 1\n" not in text  # the outermost tier spans the job


def test_the_command_prints_the_section(capsys):
    assert main(["show", "clusters", "dgx-h100", "--yaml"]) == 0
    assert capsys.readouterr().out == job_section("clusters", "dgx-h100")
    assert main(["show", "examples", "gpt3_175b_1024", "--yaml"]) == 0
    assert capsys.readouterr().out.rstrip() == example_files()["gpt3_175b_1024"].read_text().rstrip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clusters", "--yaml"], "Name it: prism-jax show clusters NAME --yaml"),
        (["clusters", "dgx-h10", "--yaml"], "Did you mean dgx-h100"),
        (["schedules", "1f1b", "--yaml"], "schedules are no section of a job file"),
        (["cluster", "dgx-h100", "--yaml"], "did you mean clusters"),
        (["clusters", "dgx-h100", "--yaml", "--json"], "cannot be combined with --json"),
        (["examples", "absent", "--yaml"], "unknown example 'absent'"),
    ],
)
def test_what_cannot_be_printed_is_said(arguments, words, capsys):
    assert main(["show", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("words", [["devices"], ["devices", "h100-sxm"]])
def test_lists_and_entries_are_written_as_html(words, tmp_path, capsys):
    assert main(["show", *words, "--html", f"{tmp_path}/page.html"]) == 0
    assert "h100-sxm" in capsys.readouterr().out
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html><html")
    assert "h100-sxm" in html


def test_a_page_of_another_ending_is_refused(tmp_path, capsys):
    assert main(["show", "devices", "--html", f"{tmp_path}/page.txt"]) == 2
    assert "the name must end in .html" in capsys.readouterr().err
