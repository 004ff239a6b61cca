"""Configurations of GPT-NeoX: one file or several, names with `-` or `_`, flow mappings with trailing commas."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case

GPT = """# GPT-2 pretraining setup
{
   # parallelism settings ( you will want to change these )
   "pipe-parallel-size": 1,
   "model-parallel-size": 1,

   # model settings
   "num-layers": 24,
   "hidden-size": 1024,
   "num-attention-heads": 16,
   "seq-length": 2048,
   "max-position-embeddings": 2048,
   "norm": "layernorm",
   "pos-emb": "rotary",
   "no-weight-tying": true,
   "scaled-upper-triang-masked-softmax-fusion": true,
   "optimizer": {
     "type": "Adam",
     "params": {
       "lr": 0.0003,
       "betas": [0.9, 0.95],
       "eps": 1.0e-8,
     }
   },
   "zero_optimization": {
    "stage": 1,
    "overlap_comm": True,
    "contiguous_gradients": True,
  },
   "train_micro_batch_size_per_gpu": 4,
   "gradient_accumulation_steps": 2,
   "checkpoint-activations": true,
   "checkpoint-num-layers": 1,
   "hidden-dropout": 0.0,
   "fp16": {
     "enabled": true,
     "loss_scale": 0,
   },
   "train-iters": 320000,
   "wall_clock_breakdown": true,
}
"""
SETUP = """# Suggested data paths when using GPT-NeoX locally
{
  "data_path": "data/enwik8/enwik8_text_document",
  "vocab_file": "data/gpt2-vocab.json",
  "merge_file": "data/gpt2-merges.txt",
  "save": "checkpoints",
  "tokenizer_type": "GPT2BPETokenizer",
}
"""
BASE = stated("layers=24 hidden=1024 ffn=4096 heads=16 kv=16 seq=2048 micro=4 zero=1 dtype=fp16 recompute=full")
LLAMA = """{
  "pipe_parallel_size": 2,
  "model_parallel_size": 2,
  "make_vocab_size_divisible_by": 1,
  "num_layers": 32,
  "hidden_size": 4096,
  "num_attention_heads": 32,
  "seq_length": 4096,
  "max_position_embeddings": 4096,
  "pos_emb": "rotary",
  "rotary_pct": 1,
  "no_weight_tying": true,
  "norm": "rmsnorm",
  "use_bias_in_norms": false,
  "use_bias_in_attn_linear": false,
  "mlp_type": "llama",
  "activation": "silu",
  "vocab_size": 32000,
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 16,
  "precision": "bfloat16",
  "zero_optimization": {"stage": 1},
}
"""
OF_LLAMA = stated(
    "layers=32 hidden=4096 ffn=11008 heads=32 kv=32 seq=4096 tp=2 pp=2 gpus=32 dp=8 micro=1 batch=128 "
    "dtype=bf16 recompute=none vocab=32000"
)
EIGHT = {"n_devices": 8}
THIRTY_TWO = {"n_devices": 32}


def _gpt(name: str, old: str, new: str, more: Mapping[str, Any], **rest: Any) -> Case:
    assert old in GPT
    options = rest.pop("options", EIGHT)
    return Case(
        name, GPT.replace(old, new), {**BASE, "gpus": 8, "batch": 64, **more}, "neox.yml", options=options, **rest
    )


def _llama(name: str, old: str, new: str, more: Mapping[str, Any]) -> Case:
    assert old in LLAMA
    return Case(name, LLAMA.replace(old, new), {**OF_LLAMA, **more}, "llama.yml", options=THIRTY_TWO)


CASES = [
    _gpt("one file", "", "", {}),
    _gpt("with local setup", "", "", {}, others={"local_setup.yml": SETUP}, arguments=["local_setup.yml"]),
    Case(
        "local setup first",
        SETUP,
        BASE | {"gpus": 8},
        "local_setup.yml",
        {"neox.yml": GPT},
        ["neox.yml"],
        options=EIGHT,
    ),
    _gpt(
        "later file counts",
        "",
        "",
        {"tp": 4, "batch": 16},
        others={"over.yml": '{"model-parallel-size": 4, "num-layers": 24}'},
        arguments=["over.yml"],
    ),
    _gpt("stages", '"pipe-parallel-size": 1', '"pipe-parallel-size": 4', {"pp": 4, "batch": 16}),
    _gpt("no pipeline", '"pipe-parallel-size": 1', '"pipe-parallel-size": 0', {"pp": 1}),
    _gpt("underscores", '"num-layers": 24', '"num_layers": 12', {"layers": 12}),
    _gpt(
        "train batch says the GPUs",
        '"checkpoint-activations"',
        '"train_batch_size": 256,\n "checkpoint-activations"',
        {"gpus": 32, "batch": 256},
        options={},
    ),
    _gpt(
        "no recomputation", '"checkpoint-activations": true', '"checkpoint-activations": false', {"recompute": "none"}
    ),
    _gpt("expansion", '"pos-emb"', '"expansion_factor": 8,\n "pos-emb"', {"ffn": 8192}),
    _gpt("experts", '"pos-emb"', '"moe_num_experts": 8, "moe_top_k": 2,\n "pos-emb"', {"experts": 8, "top_k": 2}),
    _gpt("offload", '"stage": 1,', '"stage": 2, "cpu_offload": True,', {"zero": 2, "plan.offload_optimizer": "1.0"}),
    _gpt(
        "nodes", '"train-iters"', '"num_nodes": 4, "num_gpus": 8, "train-iters"', {"gpus": 32, "batch": 256}, options={}
    ),
    _llama("llama", "", "", {}),
    _llama(
        "grouped queries and own width",
        '"mlp_type": "llama"',
        '"num_kv_heads": 8, "intermediate_size": 14336, "mlp_type": "llama"',
        {"kv": 8, "ffn": 14336},
    ),
    _llama(
        "swiglu has a third",
        '"mlp_type": "llama",\n  "activation": "silu"',
        '"activation": "swiglu", "intermediate_size": 33024, "mlp_multiple_of": 256',
        {"ffn": 11008},
    ),
    _llama(
        "swiglu with a large multiple",
        '"mlp_type": "llama",\n  "activation": "silu"',
        '"activation": "swiglu", "intermediate_size": 14336, "mlp_multiple_of": 14336',
        {"ffn": 14336},
    ),
    _llama("bf16 by its own block", '"precision": "bfloat16"', '"bf16": {"enabled": true}', {}),
    _gpt(
        "included GPUs",
        '"train-iters"',
        '"include": "localhost:0,1", "train-iters"',
        {"gpus": 2, "batch": 16},
        options={},
    ),
    Case("GPUs are asked for", GPT, file="a.yml", refused="--gpus N"),
    Case(
        "vocabulary is asked for",
        LLAMA.replace('"vocab_size": 32000', '"tokenizer_type": "SPMTokenizer"'),
        file="a.yml",
        options=THIRTY_TWO,
        refused=r"model\.vocab",
    ),
    Case(
        "state-space layers",
        GPT.replace('"norm"', '"attention_config": [[["mamba"], 24]], "norm"'),
        file="a.yml",
        options=EIGHT,
        refused="mamba: an attention of its own",
    ),
]
