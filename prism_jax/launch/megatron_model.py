"""Model that a block of arguments of Megatron-LM describes: sizes, norms, positions, experts, latent attention."""

from __future__ import annotations

import re

from .head import Head, SaidValue
from .stated import StatedJob, is_true, literal, whole

GATES = ("swiglu", "glu_activation", "geglu", "quick_geglu", "gated_linear_unit")
ENCODERS = re.compile(r"(?:^|[_/])bert(?:[_/.]|$)")  # programs that train encoders


def put_model(head: Head, job: StatedJob) -> None:
    """States the fields of the model that do not stand as they are.

    Raises:
        DataError: a value is no number.
    """
    _sizes(head, job)
    _experts(head, job)
    _latent(head, job)


def _sizes(head: Head, job: StatedJob) -> None:
    hidden, heads = job.get("model.hidden", 0), job.get("model.n_heads", 1)
    gate = next(filter(_is_set, map(head.said, GATES)), None)
    job.put("model.gated", gate is not None, gate)
    if job.get("model.ffn_hidden") is None and hidden:
        usual = (4 * hidden * 2 // 3) // 64 * 64 if gate is not None and gate.name.endswith("swiglu") else 4 * hidden
        job.put("model.ffn_hidden", usual, why="not said: as Megatron-LM takes it")
    groups = head.said("num_key_value_heads")
    if is_true(head.said("group_query_attention")):  # without it num_query_groups is not read
        groups = head.said("num_query_groups")
    job.put("model.n_kv_heads", whole(groups, 1) if groups is not None else heads, groups)
    _norm_and_position(head, job)
    untied = head.said("untie_embeddings_and_output_weights", "no_weight_tying")
    tied = head.said("share_embeddings_and_output_weights")  # of configurations
    job.put("model.tied_embeddings", is_true(tied) if tied else not is_true(untied), tied or untied)
    _biases(head, job)
    vocab = head.said("padded_vocab_size", "vocab_padded")
    job.put("model.vocab", whole(vocab, 1), vocab, why="padded")
    if vocab is None:
        _pad_vocab(head, job)
    dropout = [one for one in map(head.said, ("hidden_dropout", "attention_dropout")) if one is not None]
    if dropout:
        job.put("model.dropout", any(literal(one.text) for one in dropout), *dropout)
    window = head.said("window_size")
    if window is not None and isinstance(size := literal(window.text), list) and size and isinstance(size[0], int):
        _window(head, job, window, size[0])
    program = head.said("program")  # of a launch script
    rows = head.said("tokenizer_type")
    if program is not None and ENCODERS.search(program.text):
        job.put("model.causal", False, program)
    elif program is None and rows is not None and rows.text.startswith("BertWordPiece"):
        job.put("model.causal", False, rows, why="a tokenizer of BERT")
    job.put_whole("model.n_mtp", head.said("mtp_num_layers"), least=0)


def _is_set(value: SaidValue | None) -> bool:
    return value is not None and literal(value.text) not in (False, None, 0)


def _norm_and_position(head: Head, job: StatedJob) -> None:
    norm = head.said("normalization", "norm")
    job.put("model.norm", "rms" if norm is not None and "rms" in norm.text.lower() else "layer", norm)
    position = head.said("position_embedding_type", "pos_emb")
    rotary = head.said("use_rotary_position_embeddings")
    kind = position.text.lower().rpartition(".")[2] if position is not None else "learned"
    kind = next((known for words, known in POSITIONS.items() if words in kind), "learned")
    if is_true(rotary):
        job.put("model.position", "rope", rotary)
    else:
        absent = head.said("add_position_embedding")
        off = position is None and absent is not None and literal(absent.text) is False
        job.put("model.position", "none" if off else kind, absent if off else position)
    job.put_set("model.qk_norm", head.said("qk_layernorm"))


POSITIONS = {"rope": "rope", "rotary": "rope", "alibi": "alibi", "none": "none", "learned": "learned"}


def _biases(head: Head, job: StatedJob) -> None:
    linear, no_linear = head.said("add_bias_linear"), head.said("disable_bias_linear")
    off = is_true(no_linear) or (linear is not None and literal(linear.text) is False)
    job.put("model.bias", not off, linear or no_linear)
    job.put_set("model.qkv_bias", head.said("add_qkv_bias", "qkv_bias"))


def _pad_vocab(head: Head, job: StatedJob) -> None:
    size, multiple = head.said("vocab_size"), head.said("make_vocab_size_divisible_by")
    if size is None:
        return
    step = (whole(multiple, 1) or 128) * job.get("plan.tp", 1)
    kind = head.said("tokenizer_type")
    rows = (whole(size, 1) or 0) + (kind is not None and kind.text == "NullTokenizer")  # and the end of a document
    job.put("model.vocab", -(-rows // step) * step, size, multiple, why="padded as Megatron-LM does")


def _window(head: Head, job: StatedJob, window: SaidValue, size: int) -> None:
    job.put("model.window.size", size, window)
    skip = head.said("window_attn_skip_freq")
    every = literal(skip.text) if skip is not None else None
    if isinstance(every, int) and every > 1:
        job.put("model.window.pattern", [*["sliding"] * (every - 1), "full"], skip)


def _experts(head: Head, job: StatedJob) -> None:
    said = head.said("num_experts")
    number = whole(said) if said is not None and not _many(said) else None
    if said is not None and _many(said):
        job.refused.append(
            f"line {said.line}: num_experts = {said.text[:40]}: layers with different numbers of experts"
        )
    if said is None or number is None or number <= 1:
        job.fields.pop("plan.ep", None)
        return
    job.put("model.moe.n_experts", number, said)
    top, width = head.said("moe_router_topk", "topk", "moe_top_k"), head.said("moe_ffn_hidden_size")
    job.put("model.moe.top_k", whole(top, 1) or 1, top)
    job.put("model.moe.ffn_hidden", whole(width, 1) or job.get("model.ffn_hidden"), width)
    shared = head.said("moe_shared_expert_intermediate_size")
    if shared is not None:
        job.put("model.moe.n_shared", 1, shared)
        job.put_whole("model.moe.shared_ffn_hidden", shared)
        job.put_set("model.moe.shared_gate", head.said("moe_shared_expert_gate"))
    _which_layers(head, job)
    job.put_whole("model.moe.latent", head.said("moe_latent_size"), least=0)
    job.put_set("model.moe.router_bias", head.said("moe_router_enable_expert_bias"))
    capacity = head.said("moe_expert_capacity_factor")
    if capacity is not None and isinstance(factor := literal(capacity.text), (int, float)) and factor > 0:
        job.put("model.moe.capacity_factor", float(factor), capacity)
    put_experts_plan(head, job)


def put_experts_plan(head: Head, job: StatedJob) -> None:
    """States how experts are divided and reached; nothing where the model has none.

    Raises:
        DataError: a value is no number.
    """
    if job.get("model.moe.n_experts") is None:
        job.fields.pop("plan.ep", None)
        return
    job.put_whole("plan.etp", head.said("expert_tensor_parallel_size"))
    _dispatcher(head, job)


def _many(said: SaidValue) -> bool:
    found = literal(said.text)
    return isinstance(found, list) and len(found) > 1


def _which_layers(head: Head, job: StatedJob) -> None:
    said = head.said("moe_layer_freq", "expert_interval")
    found = literal(said.text) if said is not None else 1
    if isinstance(found, list) and all(one in (0, 1) for one in found) and 1 in found:
        first = found.index(1)
        if all(found[first:]):
            job.put("model.moe.n_dense_first", first, said)
        else:
            job.not_modelled.append(said or SaidValue("", 0))
    elif isinstance(found, int) and found > 1:
        job.put("model.moe.every", found, said)
    elif isinstance(found, str) and said is not None:
        job.not_modelled.append(said)


def _dispatcher(head: Head, job: StatedJob) -> None:
    kind, backend = head.said("moe_token_dispatcher_type"), head.said("moe_flex_dispatcher_backend")
    deep = head.said("moe_enable_deepep")
    if is_true(deep):
        job.put("software.dispatcher", "deepep", deep)
    elif kind is not None and kind.text in ("alltoall", "alltoall_seq", "allgather"):
        job.put("software.dispatcher", kind.text.removesuffix("_seq"), kind)
    elif kind is not None and kind.text == "flex" and backend is not None and backend.text in ("deepep", "hybridep"):
        job.put("software.dispatcher", backend.text, backend)
    grouped = head.said("moe_grouped_gemm")
    if grouped is not None and literal(grouped.text) is False:
        job.put("software.expert_products", "apart", grouped)


LATENT = {  # field of latent attention -> argument
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_head_dim",
    "qk_rope_head_dim": "qk_pos_emb_head_dim",
    "v_head_dim": "v_head_dim",
}


def _latent(head: Head, job: StatedJob) -> None:
    if not is_true(head.said("multi_latent_attention")):
        return
    rank = head.said("q_lora_rank")
    job.put("model.mla.q_lora_rank", whole(rank) or 0, rank)
    for field, name in LATENT.items():
        job.put_whole(f"model.mla.{field}", head.said(name))
    for path in ("model.head_dim", "model.n_kv_heads"):
        job.fields.pop(path, None)
