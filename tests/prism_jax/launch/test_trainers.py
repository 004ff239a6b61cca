"""Heads of trainers other than Megatron-LM: the fields that they state, and a verdict from each."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.errors import DataError, PrismError
from prism_jax.launch.head import Head, SaidValue, runs_of
from prism_jax.launch.head_job import HeadJob, job_of_head
from prism_jax.launch.read_heads import read_heads
from prism_jax.launch.stated import optimizer_of
from prism_jax.validation.validate_log import validate_log

from . import heads
from .cases.case import FIELDS

CASES = {  # head, steps, and fields by the short names of `FIELDS`
    "torchtitan": (
        heads.TITAN,
        heads.titan_steps(2.0),
        "layers=32 vocab=128256 tp=2 dp=4 plan.sharding=fsdp micro=2 batch=8 seq=8192 "
        "recompute=selective_op software.compile=True cluster.device=h100-sxm gpus=8",
    ),
    "torchtitan 2024": (heads.TITAN_2024, heads.titan_steps(2.0), "ffn=14336 tp=2 dp=4 recompute=full batch=8"),
    "MaxText": (
        heads.MAXTEXT,
        heads.maxtext_steps(2.0),
        "hidden=4096 model.gated=True gpus=16 dp=16 plan.sharding=hsdp plan.dp_shard=8 micro=2 batch=32 recompute=full",
    ),
    "HF Trainer": (
        heads.HUGGING_FACE,
        heads.bars(5.0),
        "layers=28 kv=4 model.tied_embeddings=False zero=3 dtype=bf16 recompute=full seq=1024 gpus=8",
    ),
    "LLaMA-Factory": (heads.LLAMA_FACTORY, heads.bars(5.0), "hidden=3584 zero=3 seq=2048 recompute=full dp=8"),
    "NeMo": (
        heads.NEMO,
        heads.bars(5.0),
        "layers=32 hidden=4096 kv=8 model.gated=True model.norm=rms tp=4 dp=4 micro=2 batch=128 seq=4096 "
        "dtype=bf16 recompute=full zero=1 gpus=16",
    ),
    "LitGPT": (
        heads.LITGPT,
        heads.bars(5.0),
        "layers=32 hidden=4096 model.adapters.rank=16 model.adapters.targets=['q_proj','v_proj','o_proj'] "
        "micro=2 batch=32 seq=1024 dtype=bf16 plan.sharding=fsdp gpus=4",
    ),
    "axolotl": (
        heads.AXOLOTL,
        heads.bars(5.0),
        "hidden=4096 model.adapters.rank=32 micro=2 batch=64 seq=4096 plan.sharding=fsdp recompute=full gpus=8",
    ),
    "ms-swift": (heads.SWIFT, heads.bars(5.0, title="Train: "), "hidden=3584 zero=3 seq=4096 batch=64 recompute=full"),
    "nanochat": (heads.NANOCHAT, heads.nanochat_steps(0.48), "layers=20 ffn=5120 gpus=8 micro=32 batch=256 seq=2048"),
    "modded-nanogpt": (
        heads.MODDED,
        heads.modded_steps(0.1234),
        "layers=12 hidden=768 seq=49152 gpus=2 cluster.device=h100-sxm",
    ),
    "verl": (heads.VERL, heads.verl_steps(60.0), "hidden=3584 cp=2 dp=8 seq=3072 micro=4 batch=512 recompute=full"),
    "verl of NumPy": (heads.VERL, heads.verl_steps(60.0, number="np.float64({})"), "dp=8"),
    "GPT-NeoX": (
        heads.neox_block(heads.NEOX),
        "\n".join(heads.megatron_steps([1.5] * 12)),
        "layers=24 model.position=rope model.tied_embeddings=False tp=2 dp=16 micro=8 batch=256 "
        "dtype=fp16 recompute=full zero=1 plan.optimizer=adam gpus=32",
    ),
}


def log_of(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def only_head(folder: Path, text: str) -> Head:
    [found] = runs_of(read_heads(log_of(folder, text)))
    return found


def read(folder: Path, text: str, device: str | None = "h100-sxm") -> HeadJob:
    return job_of_head(only_head(folder, text), "train.log", device)


def values(job: HeadJob, *names: str) -> list[Any]:
    return [job.stated.get(name) for name in names]


@pytest.mark.parametrize("name", list(CASES))
def test_fields_of_a_head(name, tmp_path):
    head, steps, wanted = CASES[name]
    job = read(tmp_path, head + steps)
    found = (str(job.stated.get(FIELDS.get(one, one))).replace(" ", "") for one in heads.stated(wanted))
    assert list(found) == list(heads.stated(wanted).values())
    job.job.check()


@pytest.mark.parametrize("name", list(CASES))
def test_a_verdict_has_three_lines(name, tmp_path):
    head, steps, _ = CASES[name]
    [run] = validate_log(log_of(tmp_path, head + steps), device="h100-sxm").runs
    assert all((run.measured_words, run.predicted_words, run.assumed_words))
    assert run.verdict in ("inside", "outside", "sick")


@pytest.mark.parametrize("prefix", ["", "[rank0]:", "[default0]: ", "10.0.0.7: ", "0: "])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (heads.MAXTEXT + heads.maxtext_steps(1.0), {"plan.dp": 16}),
        (
            heads.NANOCHAT + heads.nanochat_steps(0.5),
            {"model.n_layers": 20, "model.vocab": 65536, "plan.global_batch": 256},
        ),
    ],
)
def test_heads_are_read_behind_prefixes(text, wanted, prefix, tmp_path):
    behind = "".join(prefix + line + "\n" for line in text.splitlines())
    assert values(read(tmp_path, behind), *wanted) == list(wanted.values())


def test_several_trainings_of_nanochat_are_several_runs(tmp_path):
    second = heads.NANOCHAT.replace("num_layers: 20", "num_layers: 10").replace("model_dim: 1280", "model_dim: 640")
    second = second.replace("heads: 10", "heads: 5")
    text = heads.NANOCHAT + heads.nanochat_steps(0.5) + second + heads.nanochat_steps(0.25)
    runs = validate_log(log_of(tmp_path, text), device="h100-sxm").runs
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
    job = read(tmp_path, "\n".join(lines) + "\n" + heads.TRAINING + heads.bars(5.0), "v100-32gb")
    assert values(job, "model.hidden", "model.n_layers", "model.vocab") == [2048, 24, 50257]


def test_a_model_that_is_only_named_and_not_known_is_refused_and_mended(tmp_path):
    text = heads.TITAN.replace("Building llama3 8B", "Building secret_model 9B") + heads.titan_steps(2.0)
    path = log_of(tmp_path, text)
    with pytest.raises(DataError, match="secret_model-9B"):
        validate_log(path)
    [run] = validate_log(path, overrides=["model=llama-3-8b"]).runs
    assert run.predicted is not None


def test_no_eval_of_what_a_log_holds(tmp_path):
    command = f"'n': __import__('os').system('touch {tmp_path / 'made'}')"
    list(read_heads(log_of(tmp_path, heads.VERL.replace("'n': 4", command))))
    assert not (tmp_path / "made").exists()


def test_bars_of_loading_before_the_head_are_no_steps(tmp_path):
    mapping = "".join(f"\rMap:  {n}%|##   | {n}/100 [00:01<00:09, 1234.50 examples/s]" for n in range(100)) + "\n"
    job = read(tmp_path, mapping + heads.QWEN + heads.DEEPSPEED + mapping + heads.TRAINING + heads.bars(5.0))
    assert values(job, "model.hidden", "plan.global_batch", "plan.zero_stage") == [3584, 64, 3]


def test_a_step_of_verl_is_held_against_one_update_of_its_actor(tmp_path):
    [run] = validate_log(log_of(tmp_path, heads.VERL + heads.verl_steps(60.0)), device="h100-sxm").runs
    assert run.measured is not None
    assert (run.measured.median_s, run.compared_s) == (60.0, 20.0)


def test_a_power_limit_of_nvidia_smi_is_that_of_the_device(tmp_path):
    rows = [
        "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |",
        "| N/A   30C    P0             72W /  500W |    1234MiB /  81559MiB |      0%      Default |",
    ]
    job = read(tmp_path, "\n".join(rows) + "\n" + heads.TITAN + heads.titan_steps(2.0), None)
    assert job.job.cluster.device.power_watts == 500.0
    assert "limited to 500 W" in job.stated.notes[0]


@pytest.mark.parametrize("on_one_line", [True, False])
def test_a_configuration_of_torchtitan_in_json_is_its_flags(on_one_line, tmp_path):
    config = {"training": {"local_batch_size": 2, "seq_len": 4096, "dtype": "bfloat16"}, "optimizer": {"name": "AdamW"}}
    text = json.dumps(config, indent=None if on_one_line else 2)
    line = f"[rank0]: - root - INFO - Running with configs: {text}\n"
    found = only_head(tmp_path, line + heads.TITAN + heads.titan_steps(2.0))
    assert found.facts["flag.training.dtype"].text == "bfloat16"


VALUES = ("None", "-1", "0", "[1, 2]", "1e400", "9" * 20, "nan", "True", "''", "{}", "-3.5", "(", "0x10", "\ufffd")


@pytest.mark.parametrize("seed", range(4))
def test_mangled_heads_are_read_or_refused_in_words(seed, tmp_path):
    chosen = random.Random(seed)
    texts = [head for head, _, _ in CASES.values()] + ["\n".join(heads.megatron_block(heads.LLAMA))]
    for text in texts * 2:
        lines = text.split("\n")
        for _ in range(chosen.choice([1, 3, 10])):
            at = chosen.randrange(len(lines))
            words = lines[at].split(" ")
            words[chosen.randrange(len(words))] = chosen.choice(VALUES)
            lines[at] = " ".join(words)[: chosen.choice([20, 10_000])]
        for head in runs_of(read_heads(log_of(tmp_path, "\n".join(lines)))):
            with contextlib.suppress(PrismError):
                job_of_head(head, "train.log", "h100-sxm")


def test_sizes_of_a_vision_tower_are_not_those_of_the_model(tmp_path):
    tower = (
        '  "vision_config": {\n    "hidden_size": 1280,\n    "num_attention_heads": 16\n  },\n  "vocab_size": 152064\n'
    )
    text = heads.QWEN.replace('  "vocab_size": 152064\n', tower) + heads.TRAINING + heads.bars(5.0)
    assert only_head(tmp_path, text).facts["config.hidden_size"].text == "3584"
    assert read(tmp_path, text).stated.get("model.vocab") == 152064


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
