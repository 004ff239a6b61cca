"""Heads of trainers other than Megatron-LM: the fields that they state, and a verdict from each."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from prism_jax.core.errors import DataError, PrismError
from prism_jax.launch.head import SaidValue, runs_of
from prism_jax.launch.head_job import job_of_head
from prism_jax.launch.read_heads import read_heads
from prism_jax.launch.stated import optimizer_of
from prism_jax.validation.validate_log import validate_log

from . import heads

CASES = {
    "torchtitan": (
        heads.TITAN,
        heads.titan_steps(2.0),
        {
            "model.n_layers": 32,
            "model.vocab": 128256,
            "plan.tp": 2,
            "plan.dp": 4,
            "plan.sharding": "fsdp",
            "plan.micro_batch": 2,
            "plan.global_batch": 8,
            "plan.seq_len": 8192,
            "plan.recompute": "selective_op",
            "software.compile": True,
            "cluster.device": "h100-sxm",
            "cluster.n_devices": 8,
        },
    ),
    "torchtitan 2024": (
        heads.TITAN_2024,
        heads.titan_steps(2.0),
        {"model.ffn_hidden": 14336, "plan.tp": 2, "plan.dp": 4, "plan.recompute": "full", "plan.global_batch": 8},
    ),
    "MaxText": (
        heads.MAXTEXT,
        heads.maxtext_steps(2.0),
        {
            "model.hidden": 4096,
            "model.gated": True,
            "cluster.n_devices": 16,
            "plan.dp": 16,
            "plan.sharding": "hsdp",
            "plan.dp_shard": 8,
            "plan.micro_batch": 2,
            "plan.global_batch": 32,
            "plan.recompute": "full",
        },
    ),
    "HF Trainer": (
        heads.HUGGING_FACE,
        heads.bars(5.0),
        {
            "model.n_layers": 28,
            "model.n_kv_heads": 4,
            "model.tied_embeddings": False,
            "plan.zero_stage": 3,
            "plan.dtype": "bf16",
            "plan.recompute": "full",
            "plan.seq_len": 1024,
            "cluster.n_devices": 8,
        },
    ),
    "LLaMA-Factory": (
        heads.LLAMA_FACTORY,
        heads.bars(5.0),
        {"model.hidden": 3584, "plan.zero_stage": 3, "plan.seq_len": 2048, "plan.recompute": "full", "plan.dp": 8},
    ),
    "NeMo": (
        heads.NEMO,
        heads.bars(5.0),
        {
            "model.n_layers": 32,
            "model.hidden": 4096,
            "model.n_kv_heads": 8,
            "model.gated": True,
            "model.norm": "rms",
            "plan.tp": 4,
            "plan.dp": 4,
            "plan.micro_batch": 2,
            "plan.global_batch": 128,
            "plan.seq_len": 4096,
            "plan.dtype": "bf16",
            "plan.recompute": "full",
            "plan.zero_stage": 1,
            "cluster.n_devices": 16,
        },
    ),
    "LitGPT": (
        heads.LITGPT,
        heads.bars(5.0),
        {
            "model.n_layers": 32,
            "model.hidden": 4096,
            "model.adapters.rank": 16,
            "model.adapters.targets": ["q_proj", "v_proj", "o_proj"],
            "plan.micro_batch": 2,
            "plan.global_batch": 32,
            "plan.seq_len": 1024,
            "plan.dtype": "bf16",
            "plan.sharding": "fsdp",
            "cluster.n_devices": 4,
        },
    ),
    "axolotl": (
        heads.AXOLOTL,
        heads.bars(5.0),
        {
            "model.hidden": 4096,
            "model.adapters.rank": 32,
            "plan.micro_batch": 2,
            "plan.global_batch": 64,
            "plan.seq_len": 4096,
            "plan.sharding": "fsdp",
            "plan.recompute": "full",
            "cluster.n_devices": 8,
        },
    ),
    "ms-swift": (
        heads.SWIFT,
        heads.bars(5.0, title="Train: "),
        {
            "model.hidden": 3584,
            "plan.zero_stage": 3,
            "plan.seq_len": 4096,
            "plan.global_batch": 64,
            "plan.recompute": "full",
        },
    ),
    "nanochat": (
        heads.NANOCHAT,
        heads.nanochat_steps(0.48),
        {
            "model.n_layers": 20,
            "model.ffn_hidden": 5120,
            "cluster.n_devices": 8,
            "plan.micro_batch": 32,
            "plan.global_batch": 256,
            "plan.seq_len": 2048,
        },
    ),
    "modded-nanogpt": (
        heads.MODDED,
        heads.modded_steps(0.1234),
        {
            "model.n_layers": 12,
            "model.hidden": 768,
            "plan.seq_len": 49152,
            "cluster.n_devices": 2,
            "cluster.device": "h100-sxm",
        },
    ),
    "verl": (
        heads.VERL,
        heads.verl_steps(60.0),
        {
            "model.hidden": 3584,
            "plan.cp": 2,
            "plan.dp": 8,
            "plan.seq_len": 3072,
            "plan.micro_batch": 4,
            "plan.global_batch": 512,
            "plan.recompute": "full",
        },
    ),
}


CASES |= {
    "verl of NumPy": (heads.VERL, heads.verl_steps(60.0, number="np.float64({})"), {"plan.dp": 8}),
    "GPT-NeoX": (
        heads.neox_block(heads.NEOX),
        "\n".join(heads.megatron_steps([1.5] * 12)),
        {
            "model.n_layers": 24,
            "model.position": "rope",
            "model.tied_embeddings": False,
            "plan.tp": 2,
            "plan.dp": 16,
            "plan.micro_batch": 8,
            "plan.global_batch": 256,
            "plan.dtype": "fp16",
            "plan.recompute": "full",
            "plan.zero_stage": 1,
            "plan.optimizer": "adam",
            "cluster.n_devices": 32,
        },
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_fields_of_a_head(name, tmp_path):
    head, steps, wanted = CASES[name]
    path = tmp_path / "train.log"
    path.write_text(head + steps)
    [found] = runs_of(read_heads(path))
    job = job_of_head(found, str(path), "h100-sxm")
    assert {one: job.stated.get(one) for one in wanted} == wanted
    job.job.check()


@pytest.mark.parametrize("name", list(CASES))
def test_a_verdict_has_three_lines(name, tmp_path):
    head, steps, _ = CASES[name]
    path = tmp_path / "train.log"
    path.write_text(head + steps)
    [run] = validate_log(path, device="h100-sxm").runs
    assert all((run.measured_words, run.predicted_words, run.assumed_words))
    assert run.verdict in ("inside", "outside", "sick")


@pytest.mark.parametrize("prefix", ["", "[default0]:", "10.0.0.7: ", "0: "])
def test_maxtext_is_read_behind_prefixes(prefix, tmp_path):
    path = tmp_path / "train.log"
    path.write_text("".join(prefix + line + "\n" for line in (heads.MAXTEXT + heads.maxtext_steps(1.0)).splitlines()))
    [found] = runs_of(read_heads(path))
    assert job_of_head(found, str(path), "h100-sxm").stated.get("plan.dp") == 16


def test_several_trainings_of_nanochat_are_several_runs(tmp_path):
    path = tmp_path / "train.log"
    second = heads.NANOCHAT.replace("num_layers: 20", "num_layers: 10").replace("model_dim: 1280", "model_dim: 640")
    path.write_text(
        heads.NANOCHAT
        + heads.nanochat_steps(0.5)
        + second.replace("heads: 10", "heads: 5")
        + heads.nanochat_steps(0.25)
    )
    runs = validate_log(path, device="h100-sxm").runs
    assert [run.job["model.n_layers"] for run in runs] == [20, 10]
    assert [round(run.measured.median_s, 3) for run in runs if run.measured] == [0.5, 0.25]


def test_overrides_of_a_configuration_are_the_truth(tmp_path):
    lines = [
        "INFO:__main__:Overriding config: n_embd=2048,n_head=16,n_layer=24,n_positions=1024,gradient_checkpointing=true",
        "[INFO|configuration_utils.py:553] 2031-05-06 07:08:09,000 >> Model config GPT2Config {",
        '  "n_embd": 768,',
        '  "n_layer": 12',
        "}",
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n" + heads.TRAINING + heads.bars(5.0))
    [found] = runs_of(read_heads(path))
    stated = job_of_head(found, str(path), "v100-32gb").stated
    assert (stated.get("model.hidden"), stated.get("model.n_layers"), stated.get("model.vocab")) == (2048, 24, 50257)


def test_a_model_that_is_only_named_and_not_known_is_refused_and_mended(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(heads.TITAN.replace("Building llama3 8B", "Building secret_model 9B") + heads.titan_steps(2.0))
    with pytest.raises(DataError, match="secret_model-9B"):
        validate_log(path)
    [run] = validate_log(path, overrides=["model=llama-3-8b"]).runs
    assert run.predicted is not None


def test_no_eval_of_what_a_log_holds(tmp_path):
    path = Path(tmp_path / "train.log")
    path.write_text(
        heads.VERL.replace("'n': 4", "'n': __import__('os').system('touch " + str(tmp_path / "made") + "')")
    )
    list(read_heads(path))
    assert not (tmp_path / "made").exists()


def test_bars_of_loading_before_the_head_are_no_steps(tmp_path):
    path = tmp_path / "train.log"
    mapping = "".join(f"\rMap:  {n}%|##   | {n}/100 [00:01<00:09, 1234.50 examples/s]" for n in range(100)) + "\n"
    path.write_text(mapping + heads.QWEN + heads.DEEPSPEED + mapping + heads.TRAINING + heads.bars(5.0))
    [found] = runs_of(read_heads(path))
    stated = job_of_head(found, str(path), "h100-sxm").stated
    assert (stated.get("model.hidden"), stated.get("plan.global_batch"), stated.get("plan.zero_stage")) == (3584, 64, 3)


def test_a_step_of_verl_is_held_against_one_update_of_its_actor(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(heads.VERL + heads.verl_steps(60.0))
    [run] = validate_log(path, device="h100-sxm").runs
    assert run.measured is not None
    assert (run.measured.median_s, run.compared_s) == (60.0, 20.0)


def test_a_power_limit_of_nvidia_smi_is_that_of_the_device(tmp_path):
    path = tmp_path / "train.log"
    rows = [
        "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |",
        "| N/A   30C    P0             72W /  500W |    1234MiB /  81559MiB |      0%      Default |",
    ]
    path.write_text("\n".join(rows) + "\n" + heads.TITAN + heads.titan_steps(2.0))
    [found] = runs_of(read_heads(path))
    job = job_of_head(found, str(path))
    assert job.job.cluster.device.power_watts == 500.0
    assert "limited to 500 W" in job.stated.notes[0]


@pytest.mark.parametrize("on_one_line", [True, False])
def test_a_configuration_of_torchtitan_in_json_is_its_flags(on_one_line, tmp_path):
    config = {"training": {"local_batch_size": 2, "seq_len": 4096, "dtype": "bfloat16"}, "optimizer": {"name": "AdamW"}}
    text = json.dumps(config, indent=None if on_one_line else 2)
    path = tmp_path / "train.log"
    path.write_text(f"[rank0]: - root - INFO - Running with configs: {text}\n{heads.TITAN}{heads.titan_steps(2.0)}")
    [found] = runs_of(read_heads(path))
    assert found.facts["flag.training.dtype"].text == "bfloat16"


VALUES = ("None", "-1", "0", "[1, 2]", "1e400", "9" * 20, "nan", "True", "''", "{}", "-3.5", "(", "0x10", "\ufffd")


@pytest.mark.parametrize("seed", range(4))
def test_mangled_heads_are_read_or_refused_in_words(seed, tmp_path):
    chosen = random.Random(seed)
    path = tmp_path / "train.log"
    texts = [head for head, _, _ in CASES.values()] + ["\n".join(heads.megatron_block(heads.LLAMA))]
    for text in texts * 4:
        lines = text.split("\n")
        for _ in range(chosen.choice([1, 3, 10])):
            at = chosen.randrange(len(lines))
            words = lines[at].split(" ")
            words[chosen.randrange(len(words))] = chosen.choice(VALUES)
            lines[at] = " ".join(words)[: chosen.choice([20, 10_000])]
        path.write_text("\n".join(lines))
        for head in runs_of(read_heads(path)):
            with contextlib.suppress(PrismError):
                job_of_head(head, str(path), "h100-sxm")


def test_sizes_of_a_vision_tower_are_not_those_of_the_model(tmp_path):
    tower = (
        '  "vision_config": {\n    "hidden_size": 1280,\n    "num_attention_heads": 16\n  },\n  "vocab_size": 152064\n'
    )
    path = tmp_path / "train.log"
    path.write_text(heads.QWEN.replace('  "vocab_size": 152064\n', tower) + heads.TRAINING + heads.bars(5.0))
    [found] = runs_of(read_heads(path))
    assert found.facts["config.hidden_size"].text == "3584"
    assert job_of_head(found, str(path), "h100-sxm").stated.get("model.vocab") == 152064


@pytest.mark.parametrize("prefix", ["[rank0]:", "0: ", "[default0]: "])
def test_nanochat_is_read_behind_prefixes(prefix, tmp_path):
    path = tmp_path / "train.log"
    path.write_text("".join(prefix + line + "\n" for line in (heads.NANOCHAT + heads.nanochat_steps(0.5)).splitlines()))
    [found] = runs_of(read_heads(path))
    stated = job_of_head(found, str(path), "h100-sxm").stated
    assert (stated.get("model.n_layers"), stated.get("model.vocab"), stated.get("plan.global_batch")) == (
        20,
        65536,
        256,
    )


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("<OptimizerNames.ADAMW_TORCH: 'adamw_torch'>", "adamw"),
        ("OptimizerNames.ADAMW_TORCH_FUSED", "adamw"),
        ("adamw_bnb_8bit", "adamw_8bit"),
        ("paged_adamw_32bit", "paged_adamw"),
        ("lion_8bit", "lion_8bit"),
        ("an optimizer that nobody knows", None),
    ],
)
def test_optimizers_are_known_by_any_spelling(written: str, name: str | None):
    assert optimizer_of(SaidValue(written, 1, "training.optim")) == name
