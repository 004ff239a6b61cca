"""load_job: one line with place, field, value and remedy for everything that is wrong with a job file."""

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.job.load_job import load_job
from tests.support.job_texts import JOB, mistakes_of

# text of JOB to replace: (replacement, expected part of the message)
MISTAKES = {
    "  tp: 2": [
        ("  tpp: 2", "job.yaml:10:3 plan.tpp: unknown field, did you mean tp?"),
        ("  tensor_parallel_size: 2", "job.yaml:10:3 plan.tensor_parallel_size: unknown field, did you mean tp?"),
        ("  zzz: 2", "plan.zzz: unknown field; known are micro_batch, global_batch"),
        ("  tp: two", "job.yaml:10:3 plan.tp: 'two', but it must be an integer"),
        ("  tp: 0", "job.yaml:10:3 plan.tp: 0, but it must be at least 1"),
        ("  tp: -2", "job.yaml:10:3 plan.tp: -2, but it must be at least 1"),
        ("  tp: 2.5", "plan.tp: 2.5, but it must be an integer"),
        ("  tp: true", "plan.tp: True, but it must be an integer"),
        ("  tp:", "plan.tp: is empty; it must be an integer"),
        ("  tp: [2]", "plan.tp: [2], but it must be an integer"),
        ("  tp: 2\n  tp: 4", "job.yaml:11:3 tp: written twice, first at job.yaml:10:3"),
        ("  zero_stage: 4", "plan.zero_stage: 4, but it must be at most 3"),
        ("  schedule: 1f1", "plan.schedule: '1f1' must be one of gpipe, 1f1b, interleaved"),
        ("  schedule: 1f1", "did you mean 1f1b?"),
        ("  dtype: bfloat16", "plan.dtype: 'bfloat16' must be one of bf16, fp16, fp8, mxfp8, mxfp4, nvfp4, fp32"),
        ("  recompute: true", "plan.recompute: True, but it must be text"),
        ("  sequence_parallel: 1", "plan.sequence_parallel: 1, but it must be true or false"),
        ("  overlap: true", "plan.overlap: True, but it must be a mapping of fields"),
        ("  overlap: {ddp: true}", "job.yaml:10:13 plan.overlap.ddp: unknown field, did you mean dp?"),
        ("  axis_order: [tp, pp]", "job.yaml:10:3 plan.axis_order: ['tp', 'pp'], but it must be an order of"),
        ("  axis_order: [tp, cp, dp, ep]", "job.yaml:10:28 plan.axis_order.3: 'ep' must be one of tp, cp, dp, pp"),
        ("  layer_split: 4", "plan.layer_split: 4, but it must be a list"),
        ("  dtype: fp8\n  tp: 3", "job.yaml:6:1 plan: tp*cp*dp*pp"),
    ],
    "  seq_len: 4096\n": [("", "job.yaml:6:1 plan.seq_len: is missing")],
    "  dp: 8": [
        (
            "  dp: 4",
            (
                "job.yaml:6:1 plan: tp*cp*dp*pp = 2*1*4*4 = 32, but the cluster has 64 devices. "
                "Try dp=8; `dp: auto` in a job file finds it."
            ),
        ),
        ("  dp: most", "job.yaml:12:3 plan.dp: 'most' must be an integer, in digits only, or auto"),
    ],
    "  pp: 4\n  dp: 8": [
        (
            "  pp: 3\n  dp: auto",
            (
                "job.yaml:12:3 plan.dp: no dp fills the cluster: tp*cp*pp = 2*1*3 = 6 does not "
                "divide its 64 devices. Change a degree, or try cluster.n_devices=66."
            ),
        ),
        ("  pp: 3", "job.yaml:6:1 plan: no dp fills the cluster"),
    ],
    "name: small": [
        ("name: [a]", "job.yaml:1:1 name: ['a'], but it must be text"),
        ("software: {date: 2024}", "software.date: 2024 must be a year, or year and month, as text in quotes"),
        ("software: {date: 2024-13}", "software.date: '2024-13' must be a year, or year and month"),
        ("nmae: small", "job.yaml:1:1 nmae: unknown field, did you mean name?"),
    ],
    "model: llama-2-7b\n": [("", "job.yaml model: is missing")],
    "model: llama-2-7b": [
        ("model:", "job.yaml:2:1 model: is empty; it must be the name of a preset"),
        ("model: 7", "job.yaml:2:1 model: 7; it must be the name of a preset"),
        ("model: llama-2-7x", "job.yaml:2:1 model: unknown model 'llama-2-7x'. Did you mean llama-2-7b"),
        ("model: {preset: 7}", "job.yaml:2:9 model.preset: 7, but it must be a text"),
        ("model: {preset: llama-2-7b, layers: 2}", "model.layers: unknown field, did you mean n_layers?"),
        ("model: {preset: llama-2-7b, hf_config: x}", "model.hf_config: cannot be combined with preset"),
        ("model: {preset: llama-2-7b, norm: rmsnorm}", "model.norm: 'rmsnorm' must be one of layer, rms"),
        (
            "model: {preset: llama-2-7b, window: {size: 8, pattern: [local]}}",
            "model.window.pattern.0: 'local' must be one of full, sliding, chunked",
        ),
        (
            "model: {preset: llama-2-7b, sliding_window: 8}",
            "model.sliding_window: unknown field, did you mean window.size?",
        ),
        ("model: {preset: llama-2-7b, moe: {top_k: 2}}", "preset llama-2-7b has no moe"),
        ("model: {hf_config: absent.json}", "job.yaml:2:9 model.hf_config: "),
        ("model: {n_layers: 4, hidden: 512}", "job.yaml:2:1 model.n_heads: is missing"),
        ("model: {preset: deepseek-v3, moe: {imbalance: 0.5}}", "0.5, but it must be at least 1"),
        ("model: {kind: [a]}", "job.yaml:2:9 model.kind: ['a'], but it must be a text"),
    ],
    "  preset: dgx-h100": [
        ("  preset: dgx-h10", "job.yaml:4:3 cluster.preset: unknown cluster 'dgx-h10'. Did you mean"),
        ("  device: {n_sm: 0}", "cluster.device.peak: is missing"),
        ("  device: {preset: h100-sxm, preset: x}", "written twice"),
        ("  device: {preset: h100-sxm, generatoin: x}", "unknown field, did you mean generation?"),
        ("  tiers: {a: {}}", "job.yaml:3:1 cluster: needs a preset"),
    ],
    "  preset: dgx-h100\n": [("", "job.yaml:3:1 cluster: needs a preset")],
    "  n_devices: 64": [
        ("  n_gpus: 64", "job.yaml:5:3 cluster.n_gpus: unknown field, did you mean n_devices?"),
        ("  n_devices: '64'", "cluster.n_devices: '64', but it must be an integer"),
        ("  device:", "job.yaml:5:3 cluster.device: is empty; it must be the name of a device"),
        ("  n_devices:", "job.yaml:5:3 cluster.n_devices: is empty"),
        ("  tiers:", "job.yaml:5:3 cluster.tiers: is empty"),
        ("  node_size: 0", "cluster.node_size: 0, but it must be at least 1"),
        ("  device: h1000", "job.yaml:5:3 cluster.device: unknown device 'h1000'. Did you mean"),
        ("  device: 5", "job.yaml:5:3 cluster.device: 5; it must be the name of a device"),
        ("  device: {preset: h100-sxm, hbm: 96}", "cluster.device.hbm: 96 has no unit. Write memory with its unit"),
        ("  device: {hbm: 1}", "cluster.device.hbm: 1 has no unit"),
        ("  tiers: {nvlnk: {}}", "job.yaml:5:11 cluster.tiers.nvlnk: unknown tier, did you mean nvlink?"),
        ("  tiers: {nvlink: {bandwidth: 9 Gb/s}}", "cluster.tiers.nvlink.bandwidth: unit 'Gb/s' may mean bits or"),
        ("  tiers: {nvlink: {bandwidth: 0 GB/s}}", "'0 GB/s' is zero, but it must be positive"),
        ("  tiers: {nvlink: {oversubscription: 0.5}}", "0.5, but it must be at least 1"),
        ("  tiers: []", "cluster.tiers: [], but it must be a list of tiers, innermost first"),
        ("  tiers: [{name: a}]", "job.yaml:5:11 cluster.tiers.0.bandwidth: is missing"),
        ("  tiers: [3]", "cluster.tiers.0: 3, but it must be a mapping of fields"),
    ],
    "cluster:\n  preset: dgx-h100\n  n_devices: 64\n": [("cluster: []\n", "job.yaml:3:1 cluster: []; it must be")],
    "variability: none": [
        ("variability:", "job.yaml:13:1 variability: is empty. Name a preset"),
        ("variability: 3", "job.yaml:13:1 variability: 3. Name a preset"),
        ("variability: noone", "job.yaml:13:1 variability: "),
        ("variability: {preset: [a]}", "variability.preset: ['a'], but it must be the name of a preset"),
        ("variability: {gemmm: {}}", "job.yaml:13:15 variability"),
        ("variability: {gem-m: {}}", "job.yaml:13:15 variability.gem-m: unknown field"),
        ("variability: {gemm: {gpu: {kind: normall}}}", "job.yaml:13:28 variability.gemm.gpu.kind: "),
        ("variability: {stalls: [{step_prob: 2}]}", "job.yaml:13:24 variability.stalls.0"),
    ],
}
BROKEN = [(old, *case) for old, cases in MISTAKES.items() for case in cases]


@pytest.mark.parametrize(
    ("old", "new", "message"), BROKEN, ids=[f"{index}-{new.strip()[:30]}" for index, (_, new, _) in enumerate(BROKEN)]
)
def test_mistake_names_place_field_value_and_remedy(job_file, old, new, message):
    assert old in JOB
    found = mistakes_of(job_file(JOB.replace(old, new, 1)))
    assert found
    assert any(message in line for line in found), found
    assert all(line.startswith("job.yaml") for line in found)


def test_all_mistakes_are_listed_in_the_order_of_the_file(job_file):
    text = JOB
    for old, new in (("name: small", "nam: small"), ("64\nplan", "x\nplan"), ("tp: 2", "tp: 0"), ("none", "nope")):
        text = text.replace(old, new)
    places = [line.split(" ")[0] for line in mistakes_of(job_file(text))]
    assert places == ["job.yaml:1:1", "job.yaml:5:3", "job.yaml:10:3", "job.yaml:13:1"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["plan.tp=x"], "--set plan.tp=x: 'x', but it must be an integer"),
        (["plan.tpp=4"], "--set plan.tpp=4: unknown field; known are|did you mean"),
        (["plann.tp=4"], "--set plann.tp=4 plann: unknown field, did you mean plan?"),
        (["plan.tp"], "--set plan.tp: expected FIELD=VALUE"),
        (["=4"], "--set =4: expected FIELD=VALUE"),
        (["plan..tp=4"], "--set plan..tp=4: expected FIELD=VALUE"),
        (["plan.tp=[1"], "--set plan.tp=[1: not valid YAML"),
        (["plan.tp.x=1"], "--set plan.tp.x=1: plan.tp is 2, a plain value without fields"),
        (["cluster.tiers.nvlink.latency=3 GB"], "unit 'GB' is a unit of memory, not of time"),
        (["plan.attention=fused"], "did you mean flash?"),
        (["plan.dropout=0.1"], "dropout is not modelled"),
        (["plan.tp=0", "plan.pp=0"], "--set plan.pp=0: 0, but it must be at least 1"),
    ],
)
def test_mistakes_of_overrides_name_the_option(job_file, overrides, message):
    found = mistakes_of(job_file(JOB), overrides)
    assert any(part in line for part in message.split("|") for line in found), found


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("tp=8", "plan.tp"),
        ("tensor_model_parallel_size=8", "plan.tp"),
        ("zero_stage=1", "plan.zero_stage"),
        ("n_devices=8", "cluster.n_devices"),
        ("gpus=8", "cluster.n_devices"),
        ("host_threads=2", "plan.host_threads"),
        ("plan.cuda_graphs=true", "software.cuda_graphs"),
        ("plan.distributed_optimizer=true", "zero_stage"),
        ("plan.n_devices=8", "cluster.n_devices"),
        ("software.tp=2", "plan.tp"),
    ],
)
def test_a_field_outside_of_its_section_is_told_where_it_belongs(override, field):
    with pytest.raises(ConfigError, match=f"--set {override}: unknown field, did you mean {field}\\?"):
        load_job("llama2_7b_fsdp_64", [override])


def test_mixed_gpus_are_refused_with_what_to_do():
    data = {"model": "llama-3-8b", "cluster": {"device": ["h100-sxm", "a100-80gb"], "n_devices": 16}}
    plan = {"dp": 16, "micro_batch": 1, "global_batch": 64, "seq_len": 4096}
    said = "cluster.device: a list, but a job has one kind of device. Of mixed GPUs give the slowest"
    with pytest.raises(ConfigError, match=said):
        load_job({**data, "plan": plan})
