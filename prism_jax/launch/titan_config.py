"""torchtitan from what its users write: TOML (until 2026), the JSON that it saves, and `--section.field value` of command lines.

Values become the facts that its log prints (mesh, model, what is applied), so that one reader serves all. A degree of -1 takes
the GPUs that are left; where nobody says how many there are, that is asked for.
Source: the configuration classes of torchtitan in 2024, 2025 and 2026 (batches in tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..tables.document import Document
from .config_files import Carrier, ConfigFiles, said_of
from .head import Head, SaidValue
from .launch_line import LaunchLine, LaunchProgram, NoTrainingError
from .models import model_of_name
from .said import TITAN
from .shell_values import is_open
from .torchtitan import ARGUMENTS

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
    _sizes(head, said)


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
    tokens, length = said.get(TOKENS), head.facts.get("sequence_length")
    if tokens is None or length is None or not tokens.text.isdecimal() or not length.text.isdecimal():
        return
    size = int(tokens.text) // int(length.text)
    parts = said.get("parallelism.num_pp_microbatches")
    n_parts = int(parts.text) if parts is not None and parts.text.isdecimal() else 1
    head.arguments["flag.parallelism.pipeline_parallel_microbatch_size"] = tokens._replace(text=str(size))
    head.facts["local_batch_size"] = tokens._replace(text=str(size * n_parts))
    total = said.get("training.num_tokens_per_train_step")
    if total is not None and total.text.isdecimal():
        head.facts["global_batch_size"] = total._replace(text=str(int(total.text) // int(length.text)))


def _mesh(head: Head, said: Mapping[str, SaidValue], *, has_defaults: bool) -> None:
    found = {name: one for name, names in DEGREES.items() if (one := _first(said, names)) is not None}
    if has_defaults or "dp_shard" in found or found:
        found.setdefault("dp_shard", SaidValue("-1", 0, ""))
    world = head.said("world_size")
    known = prod(int(one.text) for name, one in found.items() if name not in ("ep", "etp") and one.text.isdecimal())
    if (
        (shard := found.get("dp_shard")) is not None
        and shard.text == "-1"
        and world is not None
        and world.text.isdecimal()
    ):
        where = shard if shard.line else world
        found["dp_shard"] = where._replace(text=str(max(int(world.text) // known, 1)))
    head.facts |= {f"mesh_{name}": one for name, one in found.items()}
    total = _first(said, ("training.global_batch_size",))
    if total is not None and total.text.isdecimal():
        head.facts["global_batch_size"] = total


def _sizes(head: Head, said: Mapping[str, SaidValue]) -> None:
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
            raise NoTrainingError(
                f"{line.path}: line {line.command.line}: names the configuration "
                f"{line.script.open.shown(named.text)[:80]}, which is not there. Name a folder above it (--root DIR), or "
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
