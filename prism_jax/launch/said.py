"""Facts that trainers state about a job in sentences: a table of patterns, whose named groups are names of facts.

A pattern is looked for only in lines that hold one of its needles. Every repeat in it is bounded, so that a hostile line costs
time in proportion to its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .config_blocks import BlockOpener
    from .head import Head
    from .stated import StatedJob

GIB, MIB = 2.0**30, 2.0**20
Pairs = Iterator[tuple[str, str]]
MEGATRON, HF, TITAN, MAXTEXT, SWIFT = "Megatron-LM", "HF Trainer", "torchtitan", "MaxText", "ms-swift"
LLAMA_FACTORY, VERL, NANOCHAT, MODDED = "LLaMA-Factory", "verl", "nanochat", "modded-nanogpt"
AXOLOTL, OPENRLHF, NANOTRON = "axolotl", "OpenRLHF", "nanotron"


class Begin(NamedTuple):
    """A line that only one trainer writes.

    Attributes:
        needle, pattern: what it holds.
        trainer: who writes it.
        starts_run: whether it stands at the begin of a run: after steps it begins another.
        overrules: whether it is surer than what was seen before.
    """

    needle: bytes
    pattern: re.Pattern[str]
    trainer: str
    starts_run: bool = False
    overrules: bool = False


@dataclass(frozen=True)
class Said:
    """A sentence.

    Attributes:
        needles: one of them stands in the line.
        read: names and values that a line says.
    """

    needles: tuple[bytes, ...]
    read: Callable[[str], Pairs]


class LogTrainer(NamedTuple):
    """A trainer whose logs state its jobs; `log_trainers.TRAINERS` lists them.

    Attributes:
        name: as `Begin.trainer` has it.
        read: fields of the job that a head states.
        begins: lines that only it writes.
        said: sentences of it.
        blocks: configurations that it prints over several lines.
    """

    name: str
    read: Callable[[Head], StatedJob]
    begins: tuple[Begin, ...] = ()
    said: tuple[Said, ...] = ()
    blocks: tuple[BlockOpener, ...] = ()


def _groups(needle: bytes, pattern: str) -> Said:
    """Named groups are names; what did not match is not said."""
    compiled = re.compile(pattern)

    def read(text: str) -> Pairs:
        found = compiled.search(text)
        if found is not None:
            yield from (
                (name.replace("__", "."), value) for name, value in found.groupdict().items() if value is not None
            )

    return Said((needle,), read)


_PARAMS = re.compile(
    r"number of parameters on (?:\(tensor, pipeline\) )?model parallel rank \(?(\d{1,6})(?:, (\d{1,6}))?\)?: (\d{1,18})"
)


def _params(text: str) -> Pairs:
    for one in _PARAMS.finditer(text):
        yield "params", f"{one[1]} {one[2] or 0} {one[3]}"


_MEMORY = re.compile(r"(max allocated|max reserved|max memory allocated): {0,4}(\d{1,9}(?:\.\d{1,12})?)")


def _memory(text: str) -> Pairs:
    """Megatron-LM prints MiB of the allocator."""
    for one in _MEMORY.finditer(text):
        kind = "most_reserved_bytes" if "reserved" in one[1] else "most_allocated_bytes"
        yield kind, repr(float(one[2]) * MIB)


_SMI = re.compile(
    r"^\|? {1,4}(\d{1,2}) {1,4}((?:NVIDIA|Tesla|GeForce|Quadro|AMD|Graphics|GRID|A100|H100)[^|]{0,60}?)"
    r"(?: {2,20}|\.\.\. {1,20})(?:On|Off)\b"
)
_SMI_POWER = re.compile(r"\d{1,4}W {1,3}/ {1,4}(\d{2,4})W")
_SMI_MEMORY = re.compile(r"\d{1,7}MiB {1,4}/ {1,4}(\d{4,7})MiB")


def _smi(text: str) -> Pairs:
    found = _SMI.search(text)
    if found is not None:
        yield "gpu", found[2].strip(" .")
        yield "most_gpu_index", found[1]
    power = _SMI_POWER.search(text)
    if power is not None:
        yield "gpu_watts", power[1]
    memory = _SMI_MEMORY.search(text)
    if memory is not None:
        yield "gpu_memory", repr(float(memory[1]) * MIB)


_TITAN_MEMORY = re.compile(r"memory: {0,4}(\d{1,5}(?:\.\d{1,4})?)GiB\((\d{1,3}(?:\.\d{1,4})?)%\)")
_RATE = re.compile(
    r"\btflops: {0,6}([\d,]{1,12}(?:\.\d{1,6})?)|throughput per GPU \(TFLOP[^)]{0,40}\): {0,6}(\d{1,6}(?:\.\d{1,4})?)"
)


def _rates(text: str) -> Pairs:
    for one in _TITAN_MEMORY.finditer(text):
        yield "most_reserved_bytes", repr(float(one[1]) * GIB)
    for one in _RATE.finditer(text):
        yield "most_tflops", (one[1] or one[2]).replace(",", "")


_TITAN_FLAG = re.compile(
    r"--([a-z_]{1,40}\.[a-z_]{1,60}|module|config|job\.config_file|nproc_per_node)(?:[= ]([^\s-]\S{0,200}))?"
)


def _flags(text: str) -> Pairs:
    """A command line of torchtitan."""
    if "torchtitan" in text or "--training." in text:
        for one in _TITAN_FLAG.finditer(text):
            if "$" not in (one[2] or ""):
                yield (one[1] if one[1] == "nproc_per_node" else f"flag.{one[1]}"), one[2] or "True"


_ARGS_CALL = re.compile(r"Building (?P<family>\S{1,60}) (?P<flavor>\S{1,80}) with \w{1,60}\((?P<inside>.{1,4000})\)")
_KEY = re.compile(r"(\w{1,60})=([^,()]{1,80})")


def _model_args(text: str) -> Pairs:
    found = _ARGS_CALL.search(text)
    if found is not None:
        for one in _KEY.finditer(found["inside"]):
            yield f"model_args.{one[1]}", one[2].strip("'\" ")


_OVERRIDES = re.compile(r"(?:Overriding config: |--config_overrides[= ]['\"]?)([\w=.,-]{3,1000})")


def _overrides(text: str) -> Pairs:
    """Values that override the defaults of `Model config`."""
    found = _OVERRIDES.search(text)
    for pair in found[1].split(",") if found is not None else ():
        name, equals, value = pair.partition("=")
        if equals:
            yield f"override.{name}", value


_LAUNCH = re.compile(r"(?:sft|pt|rlhf|run_clm|train|finetune|llamafactory-cli)(?:\.py)?\b")
_FLAG = re.compile(r"--([a-z]\w{1,60})[= ]([^\s-][^\s]{0,300})")


def _launch_flags(text: str) -> Pairs:
    """A command line of a trainer of Hugging Face."""
    if "--model" in text and _LAUNCH.search(text):
        for one in _FLAG.finditer(text):
            if "$" not in one[2]:
                yield (one[1] if one[1] == "nproc_per_node" else f"training.{one[1]}"), one[2].strip("'\"`")


TIMED = (
    b"timing",
    b"time (ms) |",
    b"forward-backward ..",
    b"all-grads-sync ..",
    b"params-all-gather ..",
    b"optimizer ..",
)
_UPDATE = re.compile(r"\btiming(?:_s)?/(update_actor):(?:np\.float\d\d\()?(\d{1,9}(?:\.\d{1,9})?)")
_MS = r"(\d{1,12}(?:\.\d{0,12})?)"
_TIMER = re.compile(
    rf"\b(forward-backward|all-grads-sync|params-all-gather|optimizer) \.{{3,60}}: \({_MS}, {_MS}\)", re.ASCII
)
_OLD_TIMERS = re.compile(rf"\| ((?:forward|backward)-[a-z-]{{3,40}}|optimizer): {_MS}(?= |$)", re.ASCII)
_OLD_EXCHANGE = "backward-params-all-reduce"


def _on_one_line(text: str) -> Pairs:
    """Timers of Megatron-LM before 2022; what a pipeline waits for is of its passes."""
    found = {one[1]: 1e-3 * float(one[2]) for one in _OLD_TIMERS.finditer(text)}
    passes = [seconds for name, seconds in found.items() if name not in (_OLD_EXCHANGE, "optimizer")]
    if passes:
        yield "timer_forward-backward", repr(sum(passes))
        for name, known in ((_OLD_EXCHANGE, "all-grads-sync"), ("optimizer", "optimizer")):
            if name in found:
                yield f"timer_{known}", repr(found[name])


def _timers(text: str) -> Pairs:
    """Parts of a step: of verl in seconds; of Megatron-LM in ms, the least and the most over ranks; before 2022 on one line."""
    yield from _on_one_line(text)
    for one in _UPDATE.finditer(text):
        yield f"timer_{one[1]}", one[2]
    for one in _TIMER.finditer(text):
        yield f"timer_{one[1]}", repr(1e-3 * float(one[3]))


_CONFIG = re.compile(r"Running with (?:args|configs?): (\{.{2,19000}\})\s*$")


def _one_line_config(text: str) -> Pairs:
    """A configuration of torchtitan in JSON on one line."""
    found = _CONFIG.search(text)
    if found is None:
        return
    try:
        yield from _flat(json.loads(found[1]), "flag", 0)
    except (ValueError, RecursionError):
        return


def _flat(data: object, front: str, depth: int) -> Pairs:
    if isinstance(data, dict) and depth < 6:
        for name, value in data.items():
            yield from _flat(value, f"{front}.{str(name)[:60]}", depth + 1)
    elif not isinstance(data, (dict, list)):
        yield front, str(data)


_MESH = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp|ep|etp|dp)=(-?\d{1,6})")


def _mesh(text: str) -> Pairs:
    for one in _MESH.finditer(text[:1000]):
        yield f"mesh_{one[1]}", one[2]


SAID: tuple[Said, ...] = (
    Said((b"number of parameters on",), _params),
    Said((b"max allocated", b"max reserved", b"max memory allocated"), _memory),
    Said((b" Off ", b" On ", b"MiB /", b"W /"), _smi),
    Said((b"memory: ", b"tflops", b"TFLOP"), _rates),
    _groups(
        b"padded vocab",
        r"padded vocab \(size: (?P<vocab_size>\d{1,9})\) with \d{1,9} dummy tokens \(new size: (?P<vocab_padded>\d{1,9})\)",
    ),
    Said((b"Building device mesh with parallelism",), _mesh),
    Said((b"torchtitan", b"--training."), _flags),
    Said((b"Building ",), _model_args),
    Said(TIMED, _timers),
    Said((b"Running with ",), _one_line_config),
    Said((b"--model",), _launch_flags),
    _groups(b"zero_optimization", r"['\"]zero_optimization['\"]: \{['\"]stage['\"]: (?P<ds__stage>\d)"),
    _groups(b"radient checkpointing enabled", r"(?P<checkpointing>Gradient checkpointing enabled)"),
    _groups(b"Setting torch_dtype", r"Setting torch_dtype: torch\.(?P<compute_dtype>\w{1,12})"),
    _groups(b"model_dir: ", r"model_dir: (?P<hf_name>\S{2,300})"),
    _groups(b"Fine-tuning method: ", r"Fine-tuning method: (?P<method>\w{2,20})"),
    _groups(b"Params (", r"(?P<params_m>[\d.]{1,12})M Params \((?P<trainable_m>[\d.]{1,12})M Trainable"),
    Said((b"Overriding config", b"--config_overrides"), _overrides),
    _groups(
        b"D device mesh with",
        r"Building \d-D device mesh with \[(?P<mesh_names>[^\]]{1,100})\], \[(?P<mesh_sizes>[\d, ]{1,60})\]",
    ),
    _groups(b"Building ", r"Building (?P<family>\w[\w.-]{0,60}) (?P<flavor>\w[\w.-]{0,80})(?: with .{0,4000})?$"),
    _groups(b"Config {", r"\b(?P<config_class>[A-Z]\w{1,40}Config) \{"),
    _groups(
        b"GPT(",
        r"GPT\(vocab_size=(?P<gpt__vocab_size>\d{1,7}), num_layers=(?P<gpt__num_layers>\d{1,3}), num_heads="
        r"(?P<gpt__num_heads>\d{1,3}), "
        r"model_dim=(?P<gpt__model_dim>\d{1,6})",
    ),
    _groups(b"train_seq_len", r"^\s{0,8}train_seq_len ?= ?(?P<gpt__train_seq_len>\d{1,7}(?: ?\* ?\d{1,7}){0,3})"),
    _groups(
        b"capacity: ",
        r"(?:CUDA|GPU|HIP|Device) capacity: (?P<gpu>[^(]{2,60}?)(?: \(\d{1,2}\))? with (?P<gpu_gib>\d{1,4}(?:\.\d{1,3})?) ?GiB",
    ),
    _groups(b"Peak FLOPS (", r"GPU: (?P<gpu>[^|]{2,60}?) \| Peak FLOPS"),
    _groups(b"Peak FLOPS", r"Peak FLOPS used for computing MFU: (?P<peak_flops>[\d.e+]{1,12})"),
    _groups(b"total parameters", r"size: (?P<model_params>[\d,]{1,20}) total parameters"),
    _groups(
        b"ocal batch size",
        r"local batch size (?P<local_batch_size>\d{1,7}), global batch size (?P<global_batch_size>\d{1,9})"
        r"(?:, gradient accumulation steps (?P<grad_accum>\d{1,7}))?, sequence length (?P<sequence_length>\d{1,8})",
    ),
    _groups(b"activation checkpointing", r"Applied (?P<ac_mode>\w{1,20}) activation checkpointing"),
    _groups(b"torch.compile", r"(?P<compiled>Compiling each TransformerBlock|Compiling the model) with torch.compile"),
    _groups(b"loss function with", r"(?P<compiled_loss>Compiling the loss function) with torch.compile"),
    _groups(b"pipeline schedule", r"Using pipeline schedule (?P<pp_schedule>\w{1,40})"),
    _groups(
        b"Float8",
        r"(?P<float8>Float8\w{0,30} (?:training active|enabled)|Swapped to (?:MXFP8|Float8)Linear|Float8 tensorwise scaled)",
    ),
    _groups(b"Applied ", r"(?P<async_tp>Applied Async Tensor Parallelism|Async TP)"),
    _groups(b"batch size per device", r"Instantaneous batch size per device = (?P<per_device>\d{1,7})"),
    _groups(
        b"Total train batch size",
        r"Total train batch size \(w\. parallel, distributed & accumulation\) = (?P<total_batch>\d{1,9})",
    ),
    _groups(b"Gradient Accumulation steps", r"Gradient Accumulation steps = (?P<accumulation>\d{1,7})"),
    _groups(b"trainable parameters", r"Number of trainable parameters = (?P<trainable>[\d,]{1,20})"),
    _groups(
        b"trainable params",
        r"trainable params: (?P<trainable>[\d,]{1,20}) \|\| all params: (?P<model_params>[\d,]{1,20})",
    ),
    _groups(b"world_size: ", r"\bworld_size: (?P<world_size>\d{1,7}), local_world_size: (?P<local_world_size>\d{1,5})"),
    _groups(
        b"world size: ",
        r"Process rank: \d{1,7}, world size: (?P<world_size>\d{1,7}), .{0,80}compute dtype: torch\.(?P<compute_dtype>\w{1,12})",
    ),
    _groups(b"n_gpu: ", r"(?P<hf_rank>Process rank): -?\d{1,7},.{0,60}n_gpu: \d.{0,40}distributed training: \w"),
    _groups(
        b"loading configuration file",
        r"loading configuration file .{0,300}?(?:models--)?"
        r"(?P<hf_name>[\w.-]{1,60}(?:--|/)[\w.-]{2,80})(?:/snapshots/\w{1,60})?/config\.json",
    ),
    _groups(b"model_name_or_path", r"model_name_or_path['\": =]{1,6}(?P<hf_name>[\w./-]{2,160})"),
    _groups(b"Num_devices", r"Num_devices: (?P<num_devices>\d{1,7}), shape \((?P<mesh_shape>[\d, ]{1,80})\)"),
    _groups(b"number parameters", r"number parameters: (?P<params_billion>[\d.]{1,12}) billion"),
    _groups(
        b"micro-batch / rank",
        r"Tokens / micro-batch / rank: (?P<device_batch>[\d,]{1,9}) x (?P<sequence_length>[\d,]{1,9}) = "
        r"(?P<rank_tokens>[\d,]{1,15})",
    ),
    _groups(b"Tokens / micro-batch: ", r"Tokens / micro-batch: (?P<micro_tokens>[\d,]{1,18})"),
    _groups(
        b"gradient accumulation steps",
        r"Total batch size (?P<total_tokens>[\d,]{1,18}) => gradient accumulation steps: (?P<grad_accum>\d{1,7})",
    ),
    _groups(b"Vocab size", r"(?:^|[\]:] ?)Vocab size: (?P<vocab_size>[\d,]{1,12})"),
    _groups(b"num_layers: ", r"(?:^|[\]:] ?)num_layers: (?P<num_layers>\d{1,5})"),
    _groups(b"model_dim: ", r"(?:^|[\]:] ?)model_dim: (?P<model_dim>\d{1,7})"),
    _groups(b"num_heads: ", r"(?:^|[\]:] ?)num_heads: (?P<num_heads>\d{1,5})"),
    _groups(b"num_kv_heads: ", r"(?:^|[\]:] ?)num_kv_heads: (?P<num_kv_heads>\d{1,5})"),
    _groups(b"Number of parameters", r"(?:^|[\]:] ?)Number of parameters: (?P<model_params>[\d,]{1,20})"),
    _groups(b"using world size", r"using world size: (?P<world_size>\d{1,7})"),
    _groups(b"batches to constant", r"setting number of micro-?batches to constant (?P<grad_accum>\d{1,7})"),
)
BEGINS: tuple[Begin, ...] = (
    Begin(b"uilding ", re.compile(r"Building (?:\d-D )?device mesh with"), TITAN, starts_run=True, overrules=True),
    Begin(
        b"ocal batch size", re.compile(r"Trainer (?:is )?initialized\b.{0,60}local batch size"), TITAN, overrules=True
    ),
    Begin(b"Config param", re.compile(r"\bConfig param \w"), MAXTEXT, starts_run=True, overrules=True),
    Begin(b"torchtitan", re.compile(r"^\+ .{0,400}torchtitan|Starting job: "), TITAN, starts_run=True),
    Begin(b"[INFO:swift]", re.compile(r"\[INFO:swift\]"), SWIFT, overrules=True),
    Begin(b"axolotl.", re.compile(r"\[axolotl\.|\baxolotl\.\w{1,40}\.\w"), AXOLOTL, overrules=True),
    Begin(b"lamafactory", re.compile(r"\bllamafactory\b"), LLAMA_FACTORY, overrules=True),
    Begin(b"Running training", re.compile(r"\*{5} ?Running training ?\*{5}"), HF, starts_run=True),
    Begin(b"Training/evaluation parameters", re.compile(r"Training/evaluation parameters"), HF, starts_run=True),
    Begin(b"Process rank: ", re.compile(r"Process rank: \d"), HF, starts_run=True),
    Begin(b"actor_rollout_ref", re.compile(r"'?actor_rollout_ref"), VERL, overrules=True),
    Begin(b"Vocab size: ", re.compile(r"(?:^|[\]:] ?)Vocab size: [\d,]{1,12}$"), "", starts_run=True),
    Begin(b"Tokens / micro-batch / rank", re.compile(r"Tokens / micro-batch / rank"), NANOCHAT, overrules=True),
    Begin(b"train_time:", re.compile(r"^(?:s|step):\d{1,9}/\d{1,9}.{0,60}train_time:"), MODDED),
)
