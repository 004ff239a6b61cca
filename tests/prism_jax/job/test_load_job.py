"""load_job: what a job file may say."""

import json
from dataclasses import replace

import numpy as np
import pytest

import prism_jax
from prism_jax.core.errors import ConfigError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import Overlap
from prism_jax.tables.streams import example_files
from prism_jax.variability.config import default_for, preset
from prism_jax.workload.catalog import model as model_preset
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.job_texts import INLINE_CLUSTER, JOB, PRESET_CLUSTER, mistakes_of
from tests.support.published_configs import PUBLISHED


def transformer(job: Job) -> TransformerSpec:
    """Its model, which is one."""
    assert isinstance(job.model, TransformerSpec)
    return job.model


def test_a_job_is_read(job_file):
    job = load_job(job_file(JOB))
    assert job.name == "small"
    assert job.model == model_preset("llama-2-7b")
    assert job.cluster.n_devices == 64
    assert (job.plan.tp, job.plan.pp, job.plan.dp, job.plan.overlap) == (2, 4, 8, Overlap())
    assert job.variability.name == "none"


def test_toml_says_the_same_as_yaml(job_file):
    text = (
        'name = "small"\nmodel = "llama-2-7b"\nvariability = "none"\n[cluster]\npreset = "dgx-h100"\nn_devices = 64\n'
        "[plan]\nmicro_batch = 1\nglobal_batch = 64\nseq_len = 4096\ntp = 2\npp = 4\ndp = 8\n"
    )
    toml, yaml = load_job(job_file(text, "job.toml")), load_job(job_file(JOB))
    assert (toml.model, toml.cluster, toml.plan) == (yaml.model, yaml.cluster, yaml.plan)


def test_omitted_sections_take_their_defaults(job_file):
    text = JOB.replace("name: small\n", "").replace("variability: none\n", "").replace("  n_devices: 64\n", "")
    job = load_job(job_file(text, "mine.yaml"))
    assert job.name == "mine"
    assert job.cluster.n_devices == job.plan.n_devices == 64
    assert job.variability == preset(default_for(job.cluster.device))


def test_a_preset_may_be_named_by_a_bare_text(job_file):
    job = load_job(job_file(JOB.replace(PRESET_CLUSTER, "cluster: dgx-h100\n")))
    assert (job.cluster.name, job.cluster.n_devices) == ("dgx-h100", 64)


def test_cluster_tiers_can_be_written_out(job_file):
    cluster = load_job(job_file(JOB.replace(PRESET_CLUSTER, INLINE_CLUSTER))).cluster
    assert [tier.name for tier in cluster.tiers] == ["nvlink", "spine"]
    assert cluster.tiers[0].bytes_per_s == pytest.approx(450e9)
    assert cluster.tiers[0].in_switch
    assert cluster.tiers[1].bytes_per_s == pytest.approx(50e9)
    assert cluster.tiers[1].latency_s == pytest.approx(12e-6)
    assert cluster.tiers[1].n_devices == 64
    assert cluster.device.name == "h100-sxm"


def test_a_device_alone_means_its_reference_design(job_file):
    text = JOB.replace(PRESET_CLUSTER, "cluster: {device: a100-80gb, n_devices: 64}\n")
    assert load_job(job_file(text)).cluster.device.name == "a100-80gb"


def test_device_and_single_tiers_of_a_preset_can_be_changed(job_file):
    change = "  device: {hbm: 96 GiB, power: 0.5 kW}\n  tiers: {nvlink: {latency: 5 us}}\n"
    cluster = load_job(job_file(JOB.replace("  n_devices: 64\n", "  n_devices: 64\n" + change))).cluster
    assert cluster.device.hbm_bytes == 96 * 2**30
    assert cluster.device.power_watts == 500
    assert cluster.tiers[0].latency_s == pytest.approx(5e-6)
    assert cluster.tiers[0].bytes_per_s == pytest.approx(450e9)


def test_a_device_can_be_written_out(job_file):
    device = "{name: mine, peak: {bf16: 1 PFLOP/s}, hbm: 80 GB, hbm_bandwidth: 3 TB/s, power: 700 W, n_sm: 100}"
    cluster = load_job(job_file(JOB.replace(PRESET_CLUSTER, INLINE_CLUSTER.replace("h100-sxm", device)))).cluster
    assert cluster.device.peak("bf16") == 1e15
    assert cluster.device.hbm_bytes == 80e9


def test_model_fields_can_be_written_out(job_file):
    text = "model: {n_layers: 8, hidden: 512, n_heads: 8, ffn_hidden: 2048, vocab: 1000, norm: rms, gated: true}"
    model = transformer(load_job(job_file(JOB.replace("model: llama-2-7b", text))))
    assert (model.name, model.n_layers, model.norm, model.gated) == ("8-layer model", 8, "rms", True)


def test_a_preset_model_can_be_changed_in_depth(job_file):
    text = JOB.replace("model: llama-2-7b", "model: {preset: deepseek-v3, n_layers: 60, moe: {top_k: 4}}")
    model, base = transformer(load_job(job_file(text))), model_preset("deepseek-v3")
    assert base.moe is not None
    assert model.moe is not None
    assert (model.n_layers, model.moe.top_k, model.moe.n_experts) == (60, 4, base.moe.n_experts)
    assert model.mla == base.mla


def test_hugging_face_config_is_found_beside_the_job(job_file, tmp_path):
    (tmp_path / "jobs").mkdir()
    sizes = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = PUBLISHED["llama-2-7b"].config | sizes
    (tmp_path / "jobs" / "config.json").write_text(json.dumps(config))
    path = job_file(JOB.replace("model: llama-2-7b", "model: {hf_config: config.json, n_layers: 8}"), "jobs/job.yaml")
    model = transformer(load_job(path))
    assert (model.n_layers, model.hidden, model.kv_heads) == (8, 512, 4)


def test_windows_can_be_written_changed_and_taken_away(job_file):
    def window(text: str):
        return transformer(load_job(job_file(JOB.replace("model: llama-2-7b", f"model: {text}")))).window

    assert window("{preset: llama-2-7b, window: {size: 512}}") == WindowSpec(512)
    assert window("{preset: gpt-oss-20b, window: {size: 256}}") == WindowSpec(256, ("sliding", "full"))
    assert window("{preset: mistral-7b, window: null}") is None


def test_overlap_and_order_reach_the_plan(job_file):
    extra = "  overlap: {dp: false, tp: true}\n  axis_order: [tp, dp, cp, pp]\n  schedule: 1f1b\n"
    plan = load_job(job_file(JOB.replace("  dp: 8\n", "  dp: 8\n" + extra))).plan
    assert plan.overlap == Overlap(dp=False, tp=True, pp=True)
    assert plan.axis_order == ("tp", "dp", "cp", "pp")


@pytest.mark.parametrize(
    ("change", "fused"), [("framework: nanotron\n", False), ("framework: megatron-core\n", True), ("", True)]
)
def test_gradients_are_added_inside_products_unless_the_framework_does_not(job_file, change, fused):
    assert load_job(job_file(change + JOB)).plan.fused_grad_accumulation is fused
    said = f"plan.fused_grad_accumulation={str(not fused).lower()}"
    assert load_job(job_file(change + JOB), [said]).plan.fused_grad_accumulation is not fused


@pytest.mark.parametrize("dp", ["", "  dp: auto\n"])
@pytest.mark.parametrize(("tp", "pp", "n_devices"), [(2, 4, 64), (1, 1, 8), (8, 3, 24), (2, 4, 1024)])
def test_dp_fills_the_cluster_where_it_is_auto_or_left_out(job_file, dp, tp, pp, n_devices):
    text = JOB.replace("  dp: 8\n", dp).replace("tp: 2", f"tp: {tp}").replace("pp: 4", f"pp: {pp}")
    text = text.replace("n_devices: 64", f"n_devices: {n_devices}").replace("global_batch: 64", "global_batch: 1024")
    job = load_job(job_file(text))
    assert job.plan.dp == n_devices // (tp * pp)
    assert job.plan.n_devices == job.cluster.n_devices == n_devices
    written = text.replace("plan:\n", f"plan:\n  dp: {job.plan.dp}\n").replace(dp, "", 1)
    assert job.plan == load_job(job_file(written)).plan


def test_auto_dp_follows_overrides(job_file):
    job = load_job(job_file(JOB), ["plan.dp=auto", "plan.tp=1", "plan.cp=2", "cluster.n_devices=32"])
    assert (job.plan.dp, job.plan.n_devices) == (4, 32)


def test_without_a_number_of_devices_dp_is_one_and_auto_is_refused(job_file):
    text = JOB.replace("  n_devices: 64\n", "")
    assert load_job(job_file(text.replace("  dp: 8\n", ""))).plan.n_devices == 8
    assert mistakes_of(job_file(text.replace("dp: 8", "dp: auto"))) == [
        "job.yaml:11:3 plan.dp: auto fills the cluster, so it needs cluster.n_devices (GPUs). Give it, or write dp as a number."
    ]


@pytest.mark.parametrize("change", ["tp: x", "tp: 0", "tp: true", "pp: 1.5", "pp: []"])
def test_auto_dp_leaves_wrong_degrees_to_their_own_message(job_file, change):
    axis = change.partition(":")[0]
    old = next(line.strip() for line in JOB.splitlines() if line.strip().startswith(axis))
    found = mistakes_of(job_file(JOB.replace("dp: 8", "dp: auto").replace(old, change)))
    assert len(found) == 1
    assert f"plan.{axis}: " in found[0]


def test_public_name_is_the_same_function():
    assert prism_jax.load_job is load_job


def test_overrides_replace_and_add_fields(job_file):
    overrides = [
        "plan.tp=4",
        "plan.dp=4",
        "plan.overlap.tp=true",
        "name=other",
        "model.n_layers=16",
        "cluster.node_size=4",
    ]
    job = load_job(job_file(JOB), [*overrides, "cluster.tiers.nvlink.bandwidth=300 GB/s"])
    assert (job.plan.tp, job.plan.dp, job.plan.overlap.tp) == (4, 4, True)
    assert (job.name, transformer(job).n_layers, job.cluster.node_size) == ("other", 16, 4)
    assert job.cluster.tiers[0].bytes_per_s == pytest.approx(300e9)


def test_overrides_reach_into_presets_written_as_bare_texts(job_file):
    text = JOB.replace(PRESET_CLUSTER, "cluster: {device: h100-sxm}\n").replace(
        "variability: none", "variability: h100-default"
    )
    overrides = ["cluster.device.hbm=96 GiB", "variability.scale=0.5", "model.vocab=32064"]
    job = load_job(job_file(text), overrides)
    assert (job.cluster.device.name, job.cluster.device.hbm_bytes) == ("h100-sxm", 96 * 2**30)
    assert transformer(job).vocab == 32064
    whole = preset("h100-default")
    name = next(name for name, factors in whole.classes.items() if factors.gpu.cv > 0)
    assert job.variability.of(name).gpu.cv == pytest.approx(whole.of(name).gpu.cv / 2, rel=0.1)


def test_overrides_reach_into_lists(job_file):
    job = load_job(job_file(JOB.replace(PRESET_CLUSTER, INLINE_CLUSTER)), ["cluster.tiers.1.oversubscription=2"])
    assert job.cluster.tiers[1].oversubscription == 2
    found = mistakes_of("job.yaml", ["cluster.tiers.5.oversubscription=2"])
    assert "'5' must be an index from 0 to 1" in found[0]


def test_last_override_of_a_field_wins(job_file):
    assert load_job(job_file(JOB), ["plan.micro_batch=8", "plan.micro_batch=2"]).plan.micro_batch == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00a", "not UTF-8 text"),
        (b"a: \x00b", "a binary file"),
        (b"# " + b"x" * 2**20, "larger than 1 MiB"),
        (b"", "the file is empty"),
    ],
)
def test_file_that_cannot_be_a_job_is_refused(tmp_path, content, message):
    (tmp_path / "x.yaml").write_bytes(content)
    assert message in mistakes_of(tmp_path / "x.yaml")[0]


def test_missing_file_and_folder_are_said(job_file, tmp_path):
    job_file(JOB)
    assert mistakes_of("jop.yaml") == ["jop.yaml: no such file. Did you mean job.yaml?"]
    assert "no such file" in mistakes_of("absent/job.yaml")[0]
    assert "a folder, not a file" in mistakes_of(tmp_path)[0]
    assert "not a usable file name" in mistakes_of("a\0b")[0] or "no such file" in mistakes_of("a\0b")[0]


def test_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbf" + JOB.encode())
    assert load_job(tmp_path / "x.yaml").name == "small"


@pytest.mark.parametrize("name", list(example_files()))
def test_every_shipped_job_is_read_by_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = load_job(name)
    assert job.plan.n_devices == job.cluster.n_devices


# --- A job as a mapping of the sections of a file ----------------------------------------------------------------------


def mapping() -> dict[str, object]:
    return {
        "name": "mine",
        "model": "llama-3-8b",
        "cluster": {"preset": "dgx-h100"},
        "plan": {"tp": np.int64(4), "dp": 2, "micro_batch": 1, "global_batch": 8, "seq_len": 1024},
    }


def test_a_mapping_is_the_job_of_a_file_with_the_same_sections(tmp_path):
    data = mapping()
    (tmp_path / "mine.json.yaml").write_text(json.dumps({**data, "plan": {**data["plan"], "tp": 4}}))  # pyright: ignore
    job = load_job(data)
    assert job == load_job(tmp_path / "mine.json.yaml")
    assert load_job(data, ["plan.tp=2", "plan.dp=4"]).plan.tp == 2
    assert data == mapping()
    assert prism_jax.check_job(data).fits == prism_jax.check_job(job).fits  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plan": {"micro_batchs": 1}}, "job plan.micro_batchs: unknown field, did you mean micro_batch"),
        ({1: 2}, "job: the key 1 is no text"),
        ({"plan": {"tp": object()}}, "job plan.tp: object is no value of a job file"),
        ({"plan": {"tp": {2}}}, "job plan.tp: set is no value"),
    ],
)
def test_mistakes_of_a_mapping_name_the_field(change, message):
    with pytest.raises(ConfigError, match=message):
        load_job({**mapping(), **change})


def test_what_is_no_job_is_refused(untyped):
    with pytest.raises(ConfigError, match="a list, but a job is a file, the name of a shipped job, or a mapping"):
        load_job(["a"])  # type: ignore[arg-type]
    deep: dict = {}
    deep["model"] = deep
    with pytest.raises(ConfigError, match="nested more than 50 levels deep"):
        load_job(deep)


# --- Published figures -----------------------------------------------------------------------------------------------


def test_a_job_file_states_what_was_published() -> None:
    """It changes no job: neither its content nor its prediction."""
    job = load_job("llama3_405b_16384")
    assert job.published is not None
    assert job.published.figures == {"tflops_per_gpu": 400.0, "mfu": 0.41}
    assert job == replace(job, published=None)
    with pytest.raises(ConfigError, match="published.mfu"):
        load_job({**mapping(), "published": {"mfu": 1.5}})
