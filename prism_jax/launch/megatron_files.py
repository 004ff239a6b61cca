"""Configuration files that state Megatron's names: one table of families, one reader; and NeMo's logs, which print such a file.

A row of `FAMILIES` says by which keys a family is known, which of its values are arguments of Megatron-LM (the others have names
of their own), where it says how many GPUs and which model, and which files it builds on. Everything then goes the way of
a printed block of arguments (`megatron.megatron_job`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..core.errors import FieldPath, Mark
from ..tables.document import Document
from .config_blocks import BlockOpener
from .config_files import Carrier, ConfigFiles, resolve, said_of
from .head import UNSAID, Head, SaidValue, plain_number, product_text
from .launch_line import LaunchLine, LaunchProgram, runs
from .megatron import megatron_job
from .megatron_programs import MARKERS, STEP_ALONE, finish, take_arguments
from .said import Begin, LogTrainer
from .stated import StatedJob

Said = Mapping[str, SaidValue]
RENAMED = {  # names of configurations of Megatron-Core, NeMo and NeMo-RL -> arguments of Megatron-LM
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "sequence_length": "seq_length",
    "max_total_sequence_length": "seq_length",
    "train_micro_batch_size": "micro_batch_size",
    "train_global_batch_size": "global_batch_size",
    "grad_reduce_in_fp32": "accumulate_allreduce_grads_in_fp32",
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "use_flash_attention": "use_flash_attn",
    "bias": "add_bias_linear",
}
MODEL_FOLDERS = ("", "models/megatron/", "configs/models/megatron/", "primus/configs/models/megatron/")  # of Primus
MOST_FOLLOWED = 20  # files that build on each other


@dataclass(frozen=True)
class NamesFile:
    """A kind of configuration file with Megatron's names.

    Attributes:
        name: of the trainer.
        keys: dotted names that such a file has, all of them; `|` between those of which one is enough.
        arguments: patterns of dotted names whose last part is an argument; of equal last parts the later pattern counts.
        renamed: dotted name or last part -> argument, before `RENAMED`.
        nodes, per_node: dotted names of the number of nodes and of the GPUs of each.
        model: dotted names of a model that is only named.
        is_config: whether a number of query groups counts by itself, as in configurations; arguments need a flag.
        then: what else follows from the values.
        notes: what must be known of it.
    """

    name: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    nodes: str = ""
    per_node: str = ""
    model: tuple[str, ...] = ()
    is_config: bool = False
    then: Callable[[Head, Said], None] = lambda head, said: None
    notes: tuple[str, ...] = ()


def is_of(family: NamesFile, document: Document) -> bool:
    """Whether a document has the keys of a family."""
    return all(any(_has(document, name) for name in key.split("|")) for key in family.keys)


def _has(document: Document, name: str) -> bool:
    inner = document.data
    for part in name.split("."):
        if not isinstance(inner, dict) or part not in inner:
            return False
        inner = inner[part]
    return True


def family_head(family: NamesFile, files: ConfigFiles) -> Head:
    """Reads the job that a configuration of a family states.

    Raises:
        ConfigError: a file that it builds on cannot be read.
    """
    head = files.head()
    said = _values(files, files.main, head, files.words_said())
    named = next((said[one] for one in family.model if one in said and said[one].text not in ("None", "")), None)
    if named is not None:
        head.facts["model_name"] = named._replace(text=named.text.removesuffix(".yaml"))
        head.arguments |= _of_model_file(files, head, named)
    for pattern in family.arguments:
        for name, value in said.items():
            if fnmatchcase(name, pattern) and (pattern.endswith("**") or name.count(".") == pattern.count(".")):
                leaf = name.rpartition(".")[2].replace("-", "_")
                leaf = family.renamed.get(name, family.renamed.get(leaf, RENAMED.get(leaf, leaf)))
                if value.text not in UNSAID or leaf not in head.arguments:
                    head.arguments[leaf] = value
    _dtypes(head, said)
    family.then(head, said)
    head.arguments |= {name: said[name] for name in files.words if "." not in name}
    if family.is_config and "group_query_attention" not in head.arguments and "num_query_groups" in head.arguments:
        head.arguments["group_query_attention"] = head.arguments["num_query_groups"]._replace(text="True")
    _gpus(family, head, said)
    head.notes += family.notes
    return finish(head)


def _values(files: ConfigFiles, document: Document, head: Head, words: Said | None = None) -> Said:
    """Values of a document and of the files that it builds on, references filled in; `words` count more."""
    return resolve(dict(_built_on(files, document, head.missing)) | dict(words or {}), files.environment, files.open)


def _of_model_file(files: ConfigFiles, head: Head, named: SaidValue) -> Said:
    """Arguments of the file of the model that a configuration names (Primus), where it is there."""
    if not named.text.endswith(".yaml"):
        return {}
    found = next(filter(None, (files.follow(f"{folder}{named.text}") for folder in MODEL_FOLDERS)), None)
    if found is None:
        return {}
    short = Path(found.name).name
    return {
        name: one._replace(name=one.name if ": " in one.name else f"{short}: {one.name}")
        for name, one in _values(files, found, head).items()
    }


def _built_on(
    files: ConfigFiles, document: Document, missing: list[SaidValue], depth: int = 0
) -> Iterator[tuple[str, SaidValue]]:
    """Yields the values of the files that a document builds on, then its own, which count more."""
    at = replace(files, main=document)
    for name, package in _named_files(document):
        found = at.follow(name.text) if depth < MOST_FOLLOWED else None
        if found is None:
            missing.append(name)
            continue
        short = Path(found.name).name
        for key, value in _built_on(files, found, missing, depth + 1):
            own = value.name.rpartition(": ")[2]
            yield (f"{package}.{key}" if package else key), value._replace(name=f"{short}: {own}")
    yield from said_of(document).items()


def _named_files(document: Document) -> Iterator[tuple[SaidValue, str]]:
    """Yields files that a document builds on and the section that their values go into: `defaults` of Hydra, `includes` and
    `extends` of Primus.
    """
    for key in ("defaults", "includes", "extends", "bases"):
        said = document.data.get(key)
        line = document.mark((key,)).line or 0
        for one in said if isinstance(said, list) else [said]:
            if isinstance(one, str) and one != "_self_":
                yield SaidValue(one if one.endswith((".yaml", ".yml")) else f"{one}.yaml", line, key), ""
            elif isinstance(one, dict) and key == "defaults":
                for group, name in one.items():
                    if isinstance(name, str) and not str(group).startswith("override hydra"):
                        folder = str(group).removeprefix("override ").lstrip("/").partition("@")[0]
                        file = f"{folder}/{name.removesuffix('.yaml')}.yaml"
                        yield SaidValue(file, line, key), folder.replace("/", ".")


def _dtypes(head: Head, said: Said) -> None:
    """Formats that are written as objects of Python (`_target_: torch.bfloat16`), and enumerations."""
    for name, value in said.items():
        path, _, last = name.rpartition(".")
        leaf = path.rpartition(".")[2]
        if last == "_target_" and value.text.startswith("torch.") and value.text.count(".") == 1:
            head.arguments[leaf] = value
        elif last == "_args_" and leaf == "attention_backend":
            kinds = {"1": "flash", "2": "fused", "3": "unfused", "4": "local", "5": "auto"}
            head.arguments[leaf] = value._replace(text=kinds.get(value.text.strip("[]"), "auto"))


def _gpus(family: NamesFile, head: Head, said: Said) -> None:
    each, nodes = said.get(family.per_node), said.get(family.nodes)
    if each is not None and plain_number(each) is not None:
        head.facts["nproc_per_node"] = each
        if (n := product_text(each, nodes)).isdecimal():
            head.arguments.setdefault("world_size", SaidValue(n, each.line, "GPUs of a node x nodes"))


# --- Values that are one together with others ------------------------------------------------------------------------


def _precision_of_text(head: Head, said: SaidValue | None) -> None:
    """Precision in words: 16, bf16, bf16-mixed, bf16_with_fp8_current_scaling_mixed."""
    if said is None:
        return
    text = said.text.lower()
    kind = "bf16" if text.startswith(("bf", "b")) else "fp16" if text.startswith(("16", "fp16", "float16")) else ""
    if kind:
        head.arguments.setdefault(kind, said._replace(text="True"))
    if "fp8" in text:
        head.arguments["fp8"] = said
        recipes = {"current": "tensorwise", "delayed": "delayed", "mx": "mxfp8", "subchannel": "blockwise"}
        recipe = next((one for word, one in recipes.items() if word in text), "delayed")
        head.arguments["fp8_recipe"] = said._replace(text=recipe)


def _of_bridge(head: Head, said: Said) -> None:
    _precision_of_text(head, said.get("mixed_precision"))
    pads, vocab = head.arguments.get("should_pad_vocab"), head.arguments.get("vocab_size")
    if pads is not None and pads.text.lower() == "false" and vocab is not None and vocab.text.isdecimal():
        head.arguments.setdefault("padded_vocab_size", vocab)


def _gate(head: Head, kind: SaidValue | None) -> None:
    """Gate of an MLP by the name of its activation."""
    if kind is not None and "swiglu" in kind.text:
        head.arguments["swiglu"] = kind._replace(text="True")
    elif kind is not None and "glu" in kind.text.replace("gelu", ""):
        head.arguments["gated_linear_unit"] = kind._replace(text="True")


def _of_nemo(head: Head, said: Said) -> None:
    _precision_of_text(head, said.get("trainer.precision", said.get("trainer.plugins.precision")))
    _gate(head, said.get("model.activation"))
    optimizer = said.get("model.optim.name", said.get("optim.name"))
    head.arguments.pop("name", None)
    if optimizer is not None:
        shared = "distributed" in optimizer.text
        head.arguments["use_distributed_optimizer"] = optimizer._replace(text=str(shared))
        is_adam = shared or "adam" in optimizer.text  # of the distributed optimizers, which both are Adam
        head.arguments["optimizer"] = optimizer._replace(text="adam" if is_adam else optimizer.text)
    low = next((said[name] for name in ("model.fp8_e4m3", "model.fp8_hybrid") if _is_set(said.get(name))), None)
    off = said.get("model.fp8")
    if low is not None and (off is None or _is_set(off)):
        head.arguments["fp8"] = low
    elif off is not None and not _is_set(off):
        head.arguments.pop("fp8", None)


def _of_nemo_rl(head: Head, said: Said) -> None:
    _precision_of_text(head, said.get("policy.precision"))
    on = said.get("policy.megatron_cfg.enabled")
    is_megatron = on is None or _is_set(on)
    part = "megatron_cfg" if is_megatron else "dtensor_cfg"
    recompute = said.get(f"policy.{part}.activation_checkpointing")
    if recompute is not None:
        head.arguments["recompute_granularity"] = recompute._replace(text="full" if _is_set(recompute) else "None")
    if not is_megatron:
        other = on or SaidValue("", 0)
        for name in ("pipeline_model_parallel_size", "expert_model_parallel_size", "sequence_parallel"):
            head.arguments.pop(name, None)
        degrees = {
            "tensor_model_parallel_size": "tensor_parallel_size",
            "context_parallel_size": "context_parallel_size",
        }
        for name, own in degrees.items():
            head.arguments[name] = said.get(f"policy.dtensor_cfg.{own}") or other._replace(text="1")
        head.arguments["use_torch_fsdp2"] = other._replace(text="True")


def _of_flagscale(head: Head, said: Said) -> None:
    bias = head.arguments.get("disable_bias_linear")
    if bias is not None and bias.text.lower() == "false":
        head.arguments.pop("disable_bias_linear")


def _of_language_model(head: Head, said: Said) -> None:
    _gate(head, said.get("language_model.activation_func"))


def _is_set(value: SaidValue | None) -> bool:
    return value is not None and value.text.lower() == "true"


FAMILIES = (
    NamesFile(
        "NeMo-RL",
        ("policy.megatron_cfg|policy.dtensor_cfg|policy.train_global_batch_size|policy.max_total_sequence_length",),
        (
            "policy.megatron_cfg.optimizer.*",
            "policy.megatron_cfg.distributed_data_parallel_config.*",
            "policy.megatron_cfg.*",
            "policy.*",
        ),
        nodes="cluster.num_nodes",
        per_node="cluster.gpus_per_node",
        model=("policy.model_name",),
        then=_of_nemo_rl,
        notes=(STEP_ALONE,),
    ),
    NamesFile(
        "Primus",
        ("modules.pre_trainer|modules.post_trainer|modules.sft_trainer",),
        ("modules.*.overrides.**",),
        model=("modules.pre_trainer.model", "modules.post_trainer.model", "modules.sft_trainer.model"),
    ),
    NamesFile(
        "FlagScale",
        ("experiment", "train.system|defaults"),
        ("train.system.**", "train.data.**", "train.model.**"),
        nodes="experiment.runner.nnodes",
        per_node="experiment.runner.nproc_per_node",
        then=_of_flagscale,
    ),
    NamesFile("FlagScale", ("system", "model"), ("system.**", "data.**", "model.**"), then=_of_flagscale),
    NamesFile(
        "Megatron-LM (--yaml-cfg)",
        ("language_model", "model_parallel"),
        ("*", "model_parallel.*", "language_model.*"),
        is_config=True,
        then=_of_language_model,
    ),
    NamesFile(
        "Megatron-Bridge",
        ("model", "train.global_batch_size|train.micro_batch_size", "ddp|dataset|checkpoint|mixed_precision"),
        ("optimizer.*", "ddp.*", "mixed_precision.*", "model.*", "tokenizer.*", "train.*", "dataset.*"),
        renamed={"tokenizer.vocab_size": "tokenizer_rows"},
        is_config=True,
        then=_of_bridge,
    ),
    NamesFile(
        "NeMo",
        (
            "trainer.devices|trainer.num_nodes|trainer.strategy",
            "model.tensor_model_parallel_size|model.micro_batch_size|model.config|trainer.strategy",
        ),
        (
            "trainer.strategy.*", "trainer.strategy.ddp.*", "optim.config.*", "model.tokenizer.*", "model.*",
            "model.config.*", "model.data.*", "data.*",
        ),
        renamed={"model.tokenizer.type": "tokenizer_type", "model.tokenizer.model": "tokenizer_model"},
        nodes="trainer.num_nodes",
        per_node="trainer.devices",
        is_config=True,
        then=_of_nemo,
    ),
)  # fmt: skip


def _of_megatron_flags(files: ConfigFiles) -> Head:
    """`MODEL_ARGS:` with `--flag: value`, as Megatron-LM's own tests have it; a flag that is false is not given."""
    head = files.head()
    given = {
        name.removeprefix("MODEL_ARGS.").lstrip("-").replace("-", "_"): value
        for name, value in files.said().items()
        if name.startswith("MODEL_ARGS.") and value.text not in ("False", "None", "")
    }
    take_arguments(head, given)
    return finish(head)


def _has_flags(document: Document) -> bool:
    return isinstance(document.data.get("MODEL_ARGS"), dict)


ANY = NamesFile("Megatron's names", (), ("**",), model=("model", "hf_checkpoint", "load"))


def _has_names(document: Document) -> bool:
    names = {name.rpartition(".")[2].replace("-", "_") for name in said_of(document)}
    return sum(marker in names for marker in MARKERS) >= 2


def _carrier(family: NamesFile) -> Carrier:
    return Carrier(family.name, lambda document: is_of(family, document), lambda files: family_head(family, files))


MEGATRON_CARRIERS = (
    Carrier("Megatron-LM (MODEL_ARGS)", _has_flags, _of_megatron_flags),
    *map(_carrier, FAMILIES),
)
ANY_MEGATRON = Carrier(ANY.name, _has_names, lambda files: family_head(ANY, files))


# --- Command lines ---------------------------------------------------------------------------------------------------


def _of_nemo_line(line: LaunchLine) -> Head:
    """Reads a command line of NeMo 1: the configuration that it names, with KEY=VALUE words in the place of its values.

    Raises:
        NoTrainingError: the configuration is not there.
    """
    folder, name = line.flags.get("config_path"), line.flags.get("config_name")
    named = "/".join(one.text.rstrip("/") for one in (folder, name) if one is not None).removesuffix(".yaml")
    found = line.follow(f"{named}.yaml") if name is not None else None
    if found is None:
        where = (
            f"the configuration {line.shown(named)}.yaml is not in its folder" if named else "it names no --config-name"
        )
        raise line.no_training(
            f"{where}. Import the configuration itself, with its KEY=VALUE words behind it; --root DIR"
        )
    words = {name: "None" if said.text == "null" else said.text for name, said in line.pairs.items()}
    files = ConfigFiles(found, (), words, line.n_devices, line.root, line.environment, line.script.open)
    head = family_head(next(one for one in FAMILIES if one.name == "NeMo"), files)
    head.first_line = head.last_line = line.command.line
    head.notes.append(f"line {line.command.line} of the script names {Path(found.name).name}: lines are of that file")
    return head


NEMO_PROGRAM = LaunchProgram("NeMo 1 (megatron_gpt_pretraining.py)", runs(r"megatron_gpt_\w+\.py\b"), _of_nemo_line)


# --- Logs ------------------------------------------------------------------------------------------------------------


def nemo_job(head: Head) -> StatedJob:
    """Fields of the job that the YAML in a log of NeMo states, by the names of its configuration files.

    Raises:
        DataError: a value is no number.
    """
    front, data = "nemo.", dict[str, Any]()
    marks: dict[FieldPath, Mark] = {}
    for name, one in head.facts.items():
        if not name.startswith(front):
            continue
        keys, inner = name.removeprefix(front).split("."), data
        for key in keys[:-1]:
            below = inner.setdefault(key, {})
            inner = below if isinstance(below, dict) else inner.setdefault(f"{key}.", {})
        inner[keys[-1]] = one.text
        marks[tuple(keys)] = Mark("log", one.line, 1)
    family = next(one for one in FAMILIES if one.name == "NeMo")
    own = family_head(family, ConfigFiles(Document("log", data, marks)))
    own.source, own.params, own.generation = head.source, head.params, head.generation
    own.facts = {**head.facts, **own.facts}
    return megatron_job(own)


NEMO_TRAINER = LogTrainer(
    "NeMo",
    nemo_job,
    (
        Begin(
            b"Experiment configuration",
            re.compile(r"\*{6} Experiment configuration"),
            "NeMo",
            starts_run=True,
            overrules=True,
        ),
    ),
    blocks=(BlockOpener(re.compile(r"\*{6,40} Experiment configuration \*{6,40}"), "nemo", "yaml"),),
)
