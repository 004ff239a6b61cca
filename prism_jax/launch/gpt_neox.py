"""Configurations of GPT-NeoX: YAML whose names are those of Megatron-LM of its time, with `-` or `_`, spread over files.

Values become arguments of Megatron-LM, read by the same reader as those that a log of GPT-NeoX prints.
Source: `megatron/neox_arguments` and `ParallelMLP` of GPT-NeoX 2.0 (widths of gated layers).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..tables.document import Document
from .config_files import Carrier, ConfigFiles
from .head import Head, SaidValue, plain_number, without_line
from .launch_line import LaunchLine, LaunchProgram, included_gpus, runs

OF_NEOX = (
    "pipe_parallel_size", "model_parallel_size", "pos_emb", "no_weight_tying", "gpt_j_residual",
    "output_layer_parallelism", "train_micro_batch_size_per_gpu", "attention_config",
)  # fmt: skip
RENAMED = {
    "num_kv_heads": "num_key_value_heads",
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.overlap_comm": "overlap_comm",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
    "optimizer.type": "optimizer",
    "moe_num_experts": "num_experts",
    "zero_optimization.cpu_offload": "cpu_optimizer",
}
USUAL = {"pos_emb": "learned", "norm": "layernorm", "make_vocab_size_divisible_by": "128"}  # of its parser
GATED = ("swiglu", "geglu", "reglu", "bilinear", "glu")
PLAIN_ATTENTION = ("global", "flash")
VOCABULARIES = {"20B_tokenizer": 50277, "gpt2": 50257}  # rows, by the name of the file
MISSING = "attention or blocks of its own"


def _plain(document: Document) -> dict[str, Any]:
    return {str(name).replace("-", "_"): value for name, value in document.data.items()}


def is_neox(document: Document) -> bool:
    """Whether a document is one of GPT-NeoX with sizes of a model or of a plan."""
    names = _plain(document)
    return "num_layers" in names and "hidden_size" in names and any(name in names for name in OF_NEOX)


def read_neox(files: ConfigFiles) -> Head:
    """Head of the training that configurations of GPT-NeoX state together; the later file counts."""
    head = files.head()
    put_neox(head, (files.main, *files.others), files.said, files.words_said())
    return head


def put_neox(
    head: Head,
    documents: Sequence[Document],
    values_of: Callable[[Document], Mapping[str, SaidValue]],
    words: Mapping[str, SaidValue] | None = None,
) -> None:
    """Puts configurations of GPT-NeoX into a head under the names of Megatron-LM.

    Args:
        documents: of which the later counts.
        values_of: values of a document by dotted name.
        words: values that count more.
    """
    said: dict[str, SaidValue] = {}
    data: dict[str, Any] = {}  # top of the documents, for lists of lists
    for one in documents:
        said |= {name.replace("-", "_"): value for name, value in values_of(one).items()}
        data |= _plain(one)
    said |= words or {}
    own = without_line(USUAL) | {RENAMED.get(name, name): one for name, one in said.items()}
    for name in ("pipe_parallel_size", "model_parallel_size", "context_parallel_size"):
        if name in own and own[name].text == "0":
            own[name] = own[name]._replace(text="1")
    own.setdefault("zero_stage", SaidValue("0", 0, "zero_stage"))
    steps = own.get("gradient_accumulation_steps") or own.get("gas")
    if steps is not None:
        head.facts["grad_accum"] = steps
    _blocks(own, data)
    _width(own)
    _flags(own)
    if _vocabulary(own):
        head.notes.append("the vocabulary is that of GPT-2: no tokenizer is named, and it is the default")
    head.arguments = own | head.arguments
    _devices(head)


def _blocks(own: dict[str, SaidValue], data: Mapping[str, Any]) -> None:
    """Attention of the layers; a kind that is none becomes the question what it is."""
    kinds = data.get("attention_config")
    if not isinstance(kinds, (list, str)):
        return
    line = next((one.line for name, one in own.items() if name.startswith("attention_config")), 0)
    text = str(kinds)
    own["attention_config"] = SaidValue(text[:400], line, "attention_config")
    strange = [one for one in re.findall(r"[a-z_]{3,}", text) if one not in PLAIN_ATTENTION]
    if strange:
        own["experimental_attention_variant"] = SaidValue(strange[0], line, "attention_config")
    window = own.get("sliding_window_width")
    if window is not None and window.text.isdecimal():
        own["window_size"] = window._replace(text=f"[{window.text}, 0]")


def _width(own: dict[str, SaidValue]) -> None:
    """Width of the MLP. A gated one of `swiglu` has a third of what is said; `mlp_type: llama` has what is said."""
    kind, activation = own.get("mlp_type"), own.get("activation")
    is_llama = kind is not None and kind.text == "llama"
    is_gated = is_llama or (activation is not None and activation.text in GATED)
    if is_gated:
        gate = kind if is_llama and kind is not None else activation or SaidValue("", 0)
        own["swiglu"] = gate._replace(text="True")
    said, factor = own.get("intermediate_size") or own.get("ffn_hidden_size"), own.get("expansion_factor")
    hidden = plain_number(own.get("hidden_size"))
    if hidden is None:
        return
    wide = plain_number(said)
    if wide is None:
        times = plain_number(factor) or 4
        wide = 2 * hidden * times // 3 if is_llama else hidden * times
    if is_gated and not is_llama:
        wide = (2 * wide // 3) // 2
    multiple = plain_number(own.get("mlp_multiple_of") or own.get("multiple_of")) or (256 if is_llama else 1)
    if not is_llama or said is None:
        wide = -(-wide // multiple) * multiple
    where = said or factor
    own["ffn_hidden_size"] = SaidValue(str(wide), where.line if where else 0, where.name if where else "")


def _flags(own: dict[str, SaidValue]) -> None:
    linear, inner = own.get("use_bias_in_attn_linear"), own.get("use_bias_in_mlp")
    if linear is not None and linear.text == "False" and (inner is None or inner.text == "False" or "swiglu" in own):
        own["add_bias_linear"] = linear
    host = own.get("zero_optimization.offload_optimizer.device")
    if host is not None and host.text in ("cpu", "nvme"):
        own["cpu_optimizer"] = host._replace(text="True")
    residual = own.get("gpt_j_residual")
    if residual is not None and residual.text == "True":
        own["parallel_residual"] = residual
    if own.get("precision") is None and not any(one in own and own[one].text == "True" for one in ("fp16", "bf16")):
        own["precision"] = SaidValue("float32", 0, "precision")
    precision = own.get("precision")
    if precision is not None and precision.text in ("fp16", "bfloat16", "bf16"):
        own["bf16" if precision.text.startswith("b") else "fp16"] = precision._replace(text="True")


def _vocabulary(own: dict[str, SaidValue]) -> bool:
    """Rows of the vocabulary: the default tokenizer is that of GPT-2; other files are known by their names. Returns whether it is
    the default.
    """
    if "vocab_size" in own or "padded_vocab_size" in own:
        return False
    kind, file = own.get("tokenizer_type"), own.get("vocab_file")
    rows = next((rows for name, rows in VOCABULARIES.items() if file is not None and name in file.text), None)
    if rows is None and (kind is None or kind.text == "GPT2BPETokenizer") and (file is None or kind is not None):
        rows, file = VOCABULARIES["gpt2"], kind
    if rows is not None:
        own["vocab_size"] = SaidValue(str(rows), file.line if file else 0, file.name if file else "tokenizer_type")
    return rows is not None and file is None


def _devices(head: Head) -> None:
    """GPUs, where they are said: nodes and GPUs of a node, or all batch sizes together."""
    own = head.arguments
    each, nodes = plain_number(own.get("num_gpus")), plain_number(own.get("num_nodes"))
    total, micro = own.get("train_batch_size"), plain_number(own.get("train_micro_batch_size_per_gpu"))
    steps = plain_number(head.facts.get("grad_accum"))
    if "world_size" in own:
        return
    include = own.get("include")
    if include is not None and (n := included_gpus(include.text)):
        own["world_size"] = include._replace(text=str(n))
    elif each and nodes:
        own["world_size"] = own["num_gpus"]._replace(text=str(each * nodes))
    elif total is not None and micro and steps and plain_number(total):
        model = (plain_number(own.get("pipe_parallel_size")) or 1) * (plain_number(own.get("model_parallel_size")) or 1)
        own["world_size"] = total._replace(text=str((plain_number(total) or 0) // (micro * steps) * model))


NEOX = Carrier("GPT-NeoX", is_neox, read_neox)


def _from_line(line: LaunchLine) -> Head:
    """Head of `deepy.py train.py -d configs 125M.yml local_setup.yml`: of the files that are there.

    Raises:
        NoTrainingError: none is, or it generates or evaluates.
    """
    if re.search(r"\b(?:generate|evaluate|eval)\.py\b", line.text):
        raise line.no_training("generates or evaluates, which is no training")
    words = [word.text for word in line.command.words]
    folders = [after for word, after in pairwise(words) if word in ("-d", "--conf_dir")]
    files: list[Document] = []
    for word in words:
        name = word if word.endswith((".yml", ".yaml")) else f"{word}.yml"
        found = line.follow(name) or next(filter(None, (line.follow(f"{one}/{name}") for one in folders)), None)
        files += [found] if found is not None else []
    if not any(map(is_neox, files)):
        raise line.no_training(
            "the configurations of GPT-NeoX that it names are not there. Give them themselves (prism-jax import 125M.yml "
            "local_setup.yml), or --root DIR."
        )
    head = line.head()
    put_neox(head, files, line.values_of)
    return head


NEOX_PROGRAM = LaunchProgram("GPT-NeoX (deepy.py)", runs(r"\bdeepy\.py\b"), _from_line)
