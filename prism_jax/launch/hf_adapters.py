"""Adapters that trainers of Hugging Face's kind state: LoRA and QLoRA, their targets, and frozen weights of few bits."""

from __future__ import annotations

import re

from .head import Head, SaidValue
from .said import OPENRLHF
from .stated import StatedJob, first_true, is_true, literal, whole

OFF = ("None", "False", "0", "", "none", "normal", "{}", "[]", "-1", "0.0")
LORA = ("lora", "qlora", "dora")
NO_ADAPTERS = ("full", "none", "None", "", "sft", "pt")
TARGETS = (
    "training.target_modules",
    "training.lora_target",
    "training.lora_target_modules",
    "training.peft_config.target_modules",
)
QKV = ("q_proj", "k_proj", "v_proj")
MATRICES = (*QKV, "o_proj", "gate_proj", "up_proj", "down_proj")
JOINT_QKV = ("c_attn", "query_key_value", "W_pack")
EVERY = ("all-linear", "all", "all_linear")


def put_adapters(head: Head, job: StatedJob) -> None:
    """States low-rank adapters, where few of the parameters are trained, and the format of what is frozen.

    Raises:
        DataError: a rank is no number.
    """
    method = head.said(
        "training.train_type",
        "training.tuner_type",
        "training.sft_type",
        "training.finetuning_type",
        "training.adapter",
        "training.peft_config.name",
        "training.peft_type",
        "method",
    )
    used = head.said("training.use_peft", "training.lora_enable", "training.use_lora", "training.enable_lora")
    rank = head.said("training.lora_rank", "training.lora_r", "training.r", "training.peft_config.r")
    kind = method.text.lower() if method is not None else ""
    if method is not None and kind not in LORA:
        job.leave_out(method if kind not in NO_ADAPTERS else None)
        return
    by_rank = head.trainer == OPENRLHF and rank is not None and (whole(rank) or 0) > 0
    if method is None and not is_true(used) and not by_rank:
        _quantised(head, job, has_adapters=False)
        return
    where = method or used or rank
    job.put("model.adapters.rank", whole(rank, 1) or 8, rank or where, why="" if rank else "default of the trainer")
    targets = head.said(*TARGETS)
    linear = head.said("training.lora_target_linear")
    job.put("model.adapters.targets", _targets(targets, linear, job), targets or linear or where)
    dropout = head.said("training.lora_dropout")
    value = literal(dropout.text) if dropout is not None else None
    job.put(
        "model.adapters.dropout", float(value) if isinstance(value, (int, float)) and 0 < value < 1 else None, dropout
    )
    if rank is None:
        job.assumed.append("adapters of rank 8")
    job.leave_out(method if kind == "dora" else None, first_true(head, "training.use_dora"))
    _quantised(head, job, has_adapters=True)


def _targets(said: SaidValue | None, linear: SaidValue | None, job: StatedJob) -> list[str]:
    if said is None or is_true(linear) or said.text.strip("[]'\"") in EVERY:
        return ["all"]
    names = [one for one in re.split(r"[\s,\[\]'\"]+", said.text) if one]
    found = [own for one in names for own in (QKV if one in JOINT_QKV else [one]) if own in MATRICES]
    if len(found) < len(names):
        job.not_modelled.append(said)
    return list(dict.fromkeys(found)) or ["all"]


BITS = ("training.bits", "training.q_bits", "training.quant_bits")


def _quantised(head: Head, job: StatedJob, *, has_adapters: bool) -> None:
    """Frozen weights of four bits (QLoRA); those of other widths are not modelled."""
    four, eight = (head.said(f"training.load_in_{bits}bit", f"training.load_{bits}bit") for bits in (4, 8))
    bits = head.said("training.quantization_bit", "training.quant_config.quantization_bit", *BITS)
    method = head.said("training.quantization_method", "training.adapter", "training.quant_config.name")
    is_four = (
        is_true(four) or (bits is not None and bits.text == "4") or (method is not None and method.text == "qlora")
    )
    said = next((one for one in (four, eight, bits) if one is not None and one.text not in (*OFF, "16")), None)
    if is_four and has_adapters and (method is None or method.text in ("bnb", "bitsandbytes", "qlora", "lora", "auto")):
        job.put("model.adapters.quantised", "nf4", said or method)
    elif said is not None:
        job.not_modelled.append(said)
