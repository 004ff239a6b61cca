"""torchtitan: which fields of a job its sentences, its command line and its configurations are.

Versions of 2024 to 2026: meshes with names and sizes, or with degrees; a model with its arguments, as JSON, or by its name alone.
What its users write, TOML (until 2026), the JSON that it saves, and `--section.field value` of command lines, becomes the facts
that its log prints (mesh, model, what is applied), so that one reader serves all. A degree of -1 takes the GPUs that are left;
where nobody says how many there are, that is asked for.
Source: the configuration classes of torchtitan in 2024, 2025 and 2026 (batches in tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..tables.document import Document
from .config_files import Carrier, ConfigFiles, said_of
from .head import Head, SaidValue, plain_number
from .launch_line import LaunchLine, LaunchProgram
from .models import model_of_name, put_configured_model, put_named_model
from .said import TITAN
from .shell_values import is_open
from .stated import StatedJob, literal, whole

ARGUMENTS = {
    "dim": "model.hidden",
    "n_layers": "model.n_layers",
    "n_heads": "model.n_heads",
    "n_kv_heads": "model.n_kv_heads",
    "vocab_size": "model.vocab",
    "hidden_dim": "model.ffn_hidden",
    "head_dim": "model.head_dim",
    "max_seq_len": "model.max_seq_len",
    "enable_weight_tying": "model.tied_embeddings",
    "qk_norm": "model.qk_norm",
    "hidden_size": "model.hidden",
    "num_hidden_layers": "model.n_layers",
    "num_attention_heads": "model.n_heads",
    "num_key_value_heads": "model.n_kv_heads",
    "num_heads": "model.n_heads",
    "num_kv_heads": "model.n_kv_heads",
    "intermediate_size": "model.ffn_hidden",
}
SCHEDULES = {"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb_v"}


def torchtitan_job(head: Head) -> StatedJob:
    """Fields of the job that a head of torchtitan states.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    _plan_mesh(head, job)
    _batch(head, job)
    _model(head, job)
    _kernels(head, job)
    job.put("framework", "torchtitan", why=f"who wrote the {head.source}")
    job.put("plan.optimizer", "adamw", head.said("flag.optimizer.name"), why="default of torchtitan")
    job.put("software.optimizer", "fused", why="default of torchtitan")
    return job


def _plan_mesh(head: Head, job: StatedJob) -> None:
    found: dict[str, SaidValue] = {name[5:]: one for name, one in head.facts.items() if name.startswith("mesh_")}
    names, sizes = found.pop("names", None), found.pop("sizes", None)
    if names is not None and sizes is not None:
        each = zip(names.text.replace("'", "").split(","), sizes.text.split(","), strict=False)
        found |= {name.strip(): SaidValue(size.strip(), names.line, "device mesh") for name, size in each}
    degrees = {name: whole(one, 1) or 1 for name, one in found.items() if plain_number(one)}
    for name in ("tp", "pp", "cp", "ep", "etp"):
        job.put(f"plan.{name}", degrees.get(name), found.get(name))
    shard, replicate = degrees.get("dp_shard", 1), degrees.get("dp_replicate", 1)
    if "dp" in degrees and "dp_shard" not in degrees:
        shard = degrees["dp"]
    said = found.get("dp_shard") or found.get("dp")
    if said is not None and said.text == "-1" and head.source != "log":
        job.put("plan.sharding", "hsdp" if replicate > 1 else "fsdp", said)
        _pipeline(head, job, found, degrees)
        return  # how many GPUs there are is asked for
    job.put("plan.dp", shard * replicate, said)
    job.put("cluster.n_devices", shard * replicate * job.model_ranks, said)
    if job.get("plan.ep") == 1:
        for path in ("plan.ep", "plan.etp"):
            job.fields.pop(path, None)
    if shard * degrees.get("cp", 1) > 1:
        job.put("plan.sharding", "hsdp" if replicate > 1 else "fsdp", said)
        keeps = head.said("flag.parallelism.fsdp_reshard_after_forward")
        is_kept = keeps is not None and (
            keeps.text == "never" or (keeps.text == "default" and degrees.get("pp", 1) > 1)
        )
        job.put("plan.zero_stage", 2 if is_kept else 3, keeps if is_kept else said)
        job.put("plan.dp_shard", shard if replicate > 1 else None, said)
    _pipeline(head, job, found, degrees)


def _pipeline(head: Head, job: StatedJob, found: dict[str, SaidValue], degrees: dict[str, int]) -> None:
    job.put("plan.sequence_parallel", True if degrees.get("tp", 1) > 1 else None, found.get("tp"))
    schedule = head.said("pp_schedule", "flag.parallelism.pipeline_parallel_schedule")
    if degrees.get("pp", 1) > 1 and schedule is not None:
        job.put("plan.schedule", SCHEDULES.get(schedule.text), schedule)
        job.put("plan.virtual_stages", 2 if schedule.text in ("Interleaved1F1B", "ZBVZeroBubble") else None, schedule)


def _batch(head: Head, job: StatedJob) -> None:
    local, total, length = (head.said(name) for name in ("local_batch_size", "global_batch_size", "sequence_length"))
    local = local or head.said("flag.training.local_batch_size", "flag.training.batch_size")
    length = length or head.said("flag.training.seq_len")
    steps, dp = whole(head.said("grad_accum"), 1) or 1, job.get("plan.dp", 1)
    job.put_whole("plan.seq_len", length)
    size = whole(local, 1)
    if size and job.get("plan.pp", 1) > 1:  # a local batch is cut into one micro-batch per stage, unless it is said
        said = head.said("flag.parallelism.pipeline_parallel_microbatch_size")
        parts = head.said("flag.experimental.pipeline_parallel_microbatches")
        old = parts is not None or (
            head.source != "log" and head.said("flag.training.batch_size") is not None and said is None
        )
        each = max(size // (whole(parts, 1) or job.get("plan.pp")), 1) if old else whole(said, 1) or 1
        job.put("plan.micro_batch", each, said or parts or local)
    else:
        job.put("plan.micro_batch", size, local)
    if total is not None:
        job.put_whole("plan.global_batch", total)
    elif size and (head.source == "log" or job.get("cluster.n_devices")):
        job.put("plan.global_batch", size * dp * steps, local)


def _model(head: Head, job: StatedJob) -> None:
    family, flavor = head.said("family"), head.said("flavor")
    if head.config is not None and put_configured_model(head, job):
        return
    if family is None:
        return
    name = f"{family.text}-{flavor.text}" if flavor is not None else family.text
    named = put_named_model(job, name, family)
    for key, path in ARGUMENTS.items():
        value = head.facts.get(f"model_args.{key}")
        plain = None if value is None else literal(value.text)
        if plain is not None and not (isinstance(plain, int) and plain < 0):
            job.put(path, plain, value)
            named = True
    if head.facts.get("model_args.dim") is not None:
        _llama_width(head, job)
    if not named or job.get("model.n_layers") is None:
        job.refused.append(
            f"line {family.line}: the {head.source} names its model {name[:80]!r} alone, which is not known here"
        )


def _llama_width(head: Head, job: StatedJob) -> None:
    """Width of the MLP of models of the Llama kind, from a multiple and a factor."""
    if head.facts.get("model_args.hidden_dim") is not None or job.get("model.moe.n_experts"):
        return
    multiple, factor = head.facts.get("model_args.multiple_of"), head.facts.get("model_args.ffn_dim_multiplier")
    if multiple is None:
        return
    wide = int(2 * 4 * job.get("model.hidden") / 3)
    times: Any = literal(factor.text) if factor is not None else None
    wide = int(times * wide) if isinstance(times, (int, float)) else wide
    step = whole(multiple, 1) or 1
    job.put("model.ffn_hidden", step * -(-wide // step), multiple, factor)


def _kernels(head: Head, job: StatedJob) -> None:
    mode = head.said("ac_mode")
    kinds = {"full": "full", "selective": "selective_op", "none": "none"}
    job.put(
        "plan.recompute",
        kinds.get(mode.text.lower(), "none") if mode is not None else "none",
        mode,
        why="" if mode else "none was applied",
    )
    _every_nth(head, job, mode)
    job.put_set("plan.optimizer_in_backward", head.said("flag.optimizer.early_step_in_backward"))
    mixed = head.said("flag.training.mixed_precision_param")
    is_wide = mixed is not None and mixed.text == "float32"
    job.put("plan.dtype", "fp32" if is_wide else "bf16", mixed, why="default of torchtitan")
    job.put_set("plan.offload_parameters", head.said("flag.training.enable_cpu_offload"))
    job.put_set("software.compile", head.said("flag.training.compile", "flag.compile.enable"))
    low = head.said("float8")
    if low is not None:
        job.put("plan.dtype", "mxfp8" if "MXFP8" in low.text else "fp8", low)
    own = head.said("flag.training.dtype")
    if own is not None and own.text in ("bfloat16", "bf16"):
        job.put("plan.state_dtypes.main_params", "none", own)
    compiled = head.said("compiled")
    job.put("software.compile", compiled is not None, compiled)
    for path, name, value in (
        ("software.cross_entropy", "compiled_loss", "compiled"),
        ("plan.overlap.tp", "async_tp", True),
    ):
        if (said := head.said(name)) is not None:
            job.put(path, value, said)


def _every_nth(head: Head, job: StatedJob, mode: SaidValue | None) -> None:
    """Recomputation of every second layer, or every n-th, in full."""
    option = head.said("flag.activation_checkpoint.selective_ac_option")
    if mode is None or mode.text.lower() != "selective" or option is None or not option.text.isdecimal():
        return
    layers, every = job.get("model.n_layers", 0) // job.get("plan.pp", 1), max(int(option.text), 1)
    job.put("plan.recompute", "full", mode, option)
    if every > 1 and layers:
        job.put("plan.recompute_method", "block", option)
        job.put("plan.recompute_num_layers", -(-layers // every), option)


# --- Configurations --------------------------------------------------------------------------------------------------

DEGREES = {
    "dp_replicate": ("parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree"),
    "dp_shard": (
        "parallelism.data_parallel_shard_degree",
        "training.data_parallel_shard_degree",
        "training.data_parallel_degree",
    ),
    "tp": ("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"),
    "pp": ("parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"),
    "cp": ("parallelism.context_parallel_degree", "experimental.context_parallel_degree"),
    "ep": ("parallelism.expert_parallel_degree",),
    "etp": ("parallelism.expert_tensor_parallel_degree",),
}
FACTS = {
    "family": ("model.name", "model_spec.name"),
    "flavor": ("model.flavor", "model_spec.flavor"),
    "pp_schedule": ("parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule"),
    "sequence_length": ("training.seq_len", "training.max_context_length"),
    "local_batch_size": ("training.local_batch_size", "training.batch_size"),
    "grad_accum": ("training.gradient_accumulation_steps",),
    "ac_mode": ("activation_checkpoint.mode",),
}
SET = {  # fact -> flags that switch it on
    "compiled": ("training.compile", "compile.enable"),
    "float8": ("float8.enable_float8_linear",),
    "async_tp": ("parallelism.enable_async_tensor_parallel", "experimental.enable_async_tensor_parallel"),
}
USUAL = {"sequence_length": "2048", "local_batch_size": "8", "ac_mode": "selective"}
FLAVORS = {
    "llama4-17bx16e": "llama-4-scout",
    "llama4-17bx128e": "llama-4-maverick",
    "deepseek_v3-16b": "deepseek-v2-lite",
    "deepseek_v3-236b": "deepseek-v2",
    "deepseek_v3-671b": "deepseek-v3",
}
TOKENS = "training.num_tokens_per_microbatch_per_dp_rank"


def is_titan(document: Document) -> bool:
    """Whether a document is one of torchtitan."""
    data = document.data
    sections = [
        name
        for name in ("training", "parallelism", "activation_checkpoint", "model")
        if isinstance(data.get(name), dict)
    ]
    is_named = isinstance(model := data.get("model"), dict) and "flavor" in model
    return (
        is_named
        or ("parallelism" in sections and "training" in sections and _has_degree(data["parallelism"]))
        or (isinstance(data.get("model_spec"), dict) and "training" in data)
    )


def _has_degree(section: Mapping[str, object]) -> bool:
    return any(str(name).endswith("_parallel_degree") or "data_parallel" in str(name) for name in section)


def read_titan(files: ConfigFiles) -> Head:
    """Head of the training that a configuration of torchtitan states."""
    head = files.head(TITAN)
    said = {name.replace("-", "_"): one for name, one in files.said().items()}
    put_titan(head, said, has_defaults=files.main.name.endswith(".toml"))
    return head


def put_titan(head: Head, said: Mapping[str, SaidValue], *, has_defaults: bool) -> None:
    """Puts values of a configuration into a head as what a log says of them.

    Args:
        said: values by dotted name.
        has_defaults: whether what is not said is as torchtitan has it; else a function of Python says it.
    """
    head.arguments |= {f"flag.{name}": one for name, one in said.items()}
    for fact, names in FACTS.items():
        found = _first(said, names)
        if found is not None:
            head.facts[fact] = found
        elif has_defaults and fact in USUAL:
            head.facts[fact] = SaidValue(USUAL[fact], 0, "")
    for fact, names in SET.items():
        on = next((said[name] for name in names if name in said and said[name].text.lower() == "true"), None)
        if on is not None:
            head.facts[fact] = on._replace(text=fact)
    converters = _first(said, ("model.converters", "model_converters.converters"))
    if converters is not None and "float8" in converters.text.lower():
        head.facts["float8"] = converters._replace(text="Float8")
    elif converters is not None and "mx" in converters.text.lower():
        head.facts["float8"] = converters._replace(text="MXFP8")
    _checkpoint(head, said)
    _tokens(head, said)
    _mesh(head, said, has_defaults=has_defaults)
    _model_sizes(head, said)


def _first(said: Mapping[str, SaidValue], names: tuple[str, ...]) -> SaidValue | None:
    return next((said[name] for name in names if name in said and said[name].text not in ("None", "")), None)


def _checkpoint(head: Head, said: Mapping[str, SaidValue]) -> None:
    """Kind of recomputation in the JSON of 2026, which names classes."""
    if "activation_checkpoint.mode" in said:
        return
    own = [one for name, one in said.items() if name.startswith("activation_checkpoint")]
    named = next((one for one in own if "AC" in one.text), None)
    if named is not None:
        kind = "full" if "FullAC" in named.text else "selective" if "SelectiveAC" in named.text else "none"
        head.facts["ac_mode"] = named._replace(text=kind)
    elif own and own[0].text == "None":
        head.facts["ac_mode"] = own[0]._replace(text="none")


def _tokens(head: Head, said: Mapping[str, SaidValue]) -> None:
    """Batches in sequences, where they are said in tokens."""
    tokens, length = said.get(TOKENS), plain_number(head.facts.get("sequence_length"))
    n_token = plain_number(tokens)
    if tokens is None or n_token is None or not length:
        return
    size = n_token // length
    n_parts = plain_number(said.get("parallelism.num_pp_microbatches"))
    head.arguments["flag.parallelism.pipeline_parallel_microbatch_size"] = tokens._replace(text=str(size))
    head.facts["local_batch_size"] = tokens._replace(text=str(size * (1 if n_parts is None else n_parts)))
    total = said.get("training.num_tokens_per_train_step")
    if total is not None and (n := plain_number(total)) is not None:
        head.facts["global_batch_size"] = total._replace(text=str(n // length))


def _mesh(head: Head, said: Mapping[str, SaidValue], *, has_defaults: bool) -> None:
    found = {name: one for name, names in DEGREES.items() if (one := _first(said, names)) is not None}
    if has_defaults or found:
        found.setdefault("dp_shard", SaidValue("-1", 0, ""))
    world, shard = head.said("world_size"), found.get("dp_shard")
    known = prod(plain_number(one) or 1 for name, one in found.items() if name not in ("ep", "etp"))
    if world is not None and (n := plain_number(world)) is not None and shard is not None and shard.text == "-1":
        where = shard if shard.line else world
        found["dp_shard"] = where._replace(text=str(max(n // known, 1)))
    head.facts |= {f"mesh_{name}": one for name, one in found.items()}
    total = said.get("training.global_batch_size")
    if total is not None and plain_number(total) is not None:
        head.facts["global_batch_size"] = total


def _model_sizes(head: Head, said: Mapping[str, SaidValue]) -> None:
    """Sizes of the model that the JSON holds, and names of flavours that no preset has."""
    for name, one in said.items():
        front, _, last = name.rpartition(".")
        if (
            last in ARGUMENTS
            and front.startswith(("model", "model_spec"))
            and "." not in front.removeprefix("model_spec.")
        ):
            head.facts.setdefault(f"model_args.{last}", one)
    family, flavor = head.facts.get("family"), head.facts.get("flavor")
    if family is not None and flavor is not None:
        other = FLAVORS.get(f"{family.text}-{flavor.text}".lower())
        if other is not None:
            head.facts["family"] = family._replace(text=other)
            head.facts.pop("flavor")


# --- Command lines ---------------------------------------------------------------------------------------------------


def _is_mine(line: LaunchLine) -> bool:
    sections = ("training.", "parallelism.", "activation_checkpoint.")
    has_flags = any(name.startswith(sections) for name in line.names)
    is_run = "run_train.sh" in line.text
    is_program = is_run or "torchtitan" in line.text or line.parts.program.endswith("train.py")
    variables = {"CONFIG_FILE", "MODULE", "CONFIG"} & line.command.variables.keys()
    return "job.config_file" in line.names or (is_program and has_flags) or (is_run and bool(variables))


def _read(line: LaunchLine) -> Head:
    """Head of the training that a command line of torchtitan starts.

    Raises:
        NoTrainingError: the configuration that says it is not there.
    """
    head = line.head(TITAN)
    variables = line.command.variables
    flags = dict(line.flags)
    named = flags.get("job.config_file") or _variable(line, "CONFIG_FILE")
    said: dict[str, SaidValue] = {}
    if named is not None:
        found = line.follow(named.text)
        if found is None:
            raise line.no_training(
                f"names the configuration {line.shown(named.text)}, which is not there. Name a folder above it (--root DIR), or "
                "import it: prism-jax import FILE.toml section.field=VALUE"
            )
        own = said_of(found)
        said |= {name: one._replace(name=f"{found.name.rpartition('/')[2]}: {name}") for name, one in own.items()}
    config = flags.get("config") or _variable(line, "CONFIG")
    if named is None and config is not None and not is_open(config.text):
        name = next((one for one in (config.text, config.text.replace("_", "-")) if model_of_name(one)), config.text)
        said["model.name"] = config._replace(text=name)
    said |= {name: one for name, one in flags.items() if "." in name}
    n = variables.get("NGPU", "")
    if "world_size" not in head.arguments and "run_train.sh" in line.text:
        text, where = (n, "NGPU") if n.isdecimal() else ("8", "default of run_train.sh")
        head.arguments["world_size"] = SaidValue(text, line.command.line, where)
    model = flags.get("model.config")
    own_model = line.follow(model.text) if model is not None else None
    if own_model is not None and "model_type" in own_model.data:
        head.config = own_model.data
    put_titan(head, said, has_defaults=named is not None)
    return head


def _variable(line: LaunchLine, name: str) -> SaidValue | None:
    text = line.command.variables.get(name)
    return SaidValue(text, line.command.line, name) if text else None


TITAN_CARRIER = Carrier("torchtitan", is_titan, read_titan)
TITAN_PROGRAM = LaunchProgram("torchtitan (--job.config_file, --training.seq_len)", _is_mine, _read)
