"""Are the argument sets of Megatron-LM's own tests read right when they are written as launch files?

python -m experiments.launch_files.run [--data ../shared/data] [--sets N]
python -m experiments.launch_files.run --cases

Every set becomes a script in one of four ways (plain, an array, one quoted string behind `eval`, a function with positional
arguments), a YAML of `MODEL_ARGS`, a configuration in sections as Megatron-Bridge has it, and the block that a log prints.
Counted are values that the set states and the import has otherwise, and sizes that follow from Megatron's defaults, against the
columns of the table. The exit code is 1 where fewer than 98 % of the sets are right.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from prism_jax.core.errors import PrismError
from prism_jax.launch.config_files import ConfigFiles, read_document
from prism_jax.launch.head import Head, SaidValue, runs_of
from prism_jax.launch.launch_files import head_of_config, head_of_script
from prism_jax.launch.megatron import megatron_job
from prism_jax.launch.megatron_programs import INVERSE
from prism_jax.launch.read_heads import read_heads
from prism_jax.launch.stated import BY_HAND, NO_FIELD, StatedJob
from tests.prism_jax.launch.cases import carriers, cases_of
from tests.prism_jax.launch.cases.case import wrong as case_wrong

STATED = {
    "--num-layers": "model.n_layers",
    "--hidden-size": "model.hidden",
    "--ffn-hidden-size": "model.ffn_hidden",
    "--num-attention-heads": "model.n_heads",
    "--seq-length": "plan.seq_len",
    "--micro-batch-size": "plan.micro_batch",
    "--global-batch-size": "plan.global_batch",
    "--tensor-model-parallel-size": "plan.tp",
    "--pipeline-model-parallel-size": "plan.pp",
    "--context-parallel-size": "plan.cp",
    "--expert-model-parallel-size": "plan.ep",
    "--num-experts": "model.moe.n_experts",
    "--moe-router-topk": "model.moe.top_k",
}
RESOLVED = {  # columns of the table
    "num_layers": "model.n_layers",
    "hidden": "model.hidden",
    "ffn": "model.ffn_hidden",
    "heads": "model.n_heads",
    "kv_heads": "model.n_kv_heads",
    "vocab_padded": "model.vocab",
    "gated_mlp": "model.gated",
    "tied_embeddings": "model.tied_embeddings",
    "bias_linear": "model.bias",
    "n_gpus": "cluster.n_devices",
    "dp": "plan.dp",
}
WAYS = ("plain", "array", "quoted", "function")  # of writing a set as a script
FORMS = ("script", "MODEL_ARGS", "sections", "block")  # of files; a set is written as each
OF_CORE = {"num_experts": "num_moe_experts"}  # arguments that configurations of Megatron-Core call otherwise
IN_SECTIONS = {
    "train": ("micro-batch-size", "global-batch-size", "train-iters"),
    "dataset": ("seq-length",),
    "ddp": ("use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather"),
    "optimizer": ("optimizer", "lr", "min-lr", "weight-decay", "clip-grad"),
}
LEAST = 0.98


def flags(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields flags and their values as a shell has them."""
    for name, value in arguments.items():
        if value is True:
            yield name, ""
        elif value is not False and value is not None:
            text = str(value)
            yield (
                name,
                text if text.isalnum() or text.replace(".", "").replace("-", "").isalnum() else shlex.quote(text),
            )


def script(one: Mapping[str, Any], way: str) -> str:
    """Writes a set as a script."""
    words = [f"{name} {value}".strip() for name, value in flags(one["model_args"])]
    program = one["training_script"] or "pretrain_gpt.py"
    front = f"#!/bin/bash\nGPUS_PER_NODE={one['gpus_per_node']}\nNNODES=${{NNODES:-{one['nodes']}}}\n"
    run = f"torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES {program}"
    if way == "plain":
        return f"{front}{run} \\\n    " + " \\\n    ".join(words) + "\n"
    if way == "array":
        return f"{front}ARGS=(\n    " + "\n    ".join(words) + f'\n)\n{run} "${{ARGS[@]}}"\n'
    text = " \\\n    ".join(words).replace('"', '\\"')
    if way == "quoted":
        return f'{front}ARGS="\n    {text}\n"\ncmd="{run} $ARGS"\necho $cmd\neval $cmd\n'
    sizes = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size")
    tp, pp = (one["model_args"].get(name, 1) for name in sizes)
    rest = " \\\n    ".join(word for word in words if not word.startswith(sizes))
    own = f"{sizes[0]} $1 {sizes[1]} $2"
    return f"{front}launch() {{\n  {run} {own} \\\n    {rest}\n}}\nif [ $NNODES -ge 1 ]; then launch {tp} {pp}; fi\n"


def model_args(one: Mapping[str, Any]) -> str:
    """Writes a set as Megatron-LM's own tests have it."""
    rows = [f"  {name}: {json.dumps(value)}" for name, value in one["model_args"].items()]
    return "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n" + "\n".join(rows) + "\n"


def sections(one: Mapping[str, Any]) -> str:
    """Writes a set as a configuration in sections, as Megatron-Bridge does."""
    text = {name: [f"{name}:", f"  _target_: bridge.{name}"] for name in ("model", *IN_SECTIONS)}
    given = {
        name.lstrip("-"): value for name, value in one["model_args"].items() if value is not None and value is not False
    }
    grouped = "group-query-attention" in given
    for name, value in given.items():
        if name == "num-query-groups" and not grouped:
            continue  # a configuration has no flag beside it
        section = next((section for section, names in IN_SECTIONS.items() if name in names), "model")
        off = INVERSE.match(name.replace("-", "_")) is not None and value is True
        argument = name.replace("-", "_")
        argument, value = (argument[3:], False) if off else (argument, value)
        text[section].append(f"  {OF_CORE.get(argument, argument)}: {json.dumps(value)}")
    return "\n".join(row for rows in text.values() for row in rows) + "\n"


def block(one: Mapping[str, Any]) -> str:
    """Writes a set as the block of arguments that Megatron-LM prints, with the defaults that it prints too."""
    n = one["nodes"] * one["gpus_per_node"]
    values: dict[str, Any] = {"sequence_parallel": False, "transformer_impl": "transformer_engine", "world_size": n}
    for name, value in one["model_args"].items():
        argument = name.lstrip("-").replace("-", "_")
        if value is not None and value is not False:
            off = INVERSE.match(argument) is not None and value is True
            values[argument[3:] if off else argument] = not off if value is True else value
    rows = [f"[default0]:  {name} {'.' * max(48 - len(name), 3)} {value}" for name, value in sorted(values.items())]
    first, last = (
        "------------------------ arguments ------------------------",
        "-------------------- end of arguments ---------------------",
    )
    return "\n".join([f"using world size: {n}", first, *rows, last, ""])


def wrong(one: Mapping[str, Any], job: StatedJob, row: Mapping[str, Any] | None) -> list[str]:
    """Lists what differs from what the set states, and from the columns of the table."""
    found = [
        f"{path}: {one['model_args'][name]}, read {job.get(path)}"
        for name, path in STATED.items()
        if name in one["model_args"] and _differs(one["model_args"][name], job.get(path))
    ]
    if row is not None:
        found += [
            f"{path}: {row[name]} in the table, read {job.get(path)}"
            for name, path in RESOLVED.items()
            if job.get(path) is not None and not pd.isna(row[name]) and int(row[name]) != int(job.get(path))
        ]
    return found


def _differs(stated: Any, read: Any) -> bool:
    if read is None:  # one expert, or parallelism of experts that there are not
        return str(stated) not in ("1", "None")
    return str(stated) != str(read)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", type=int, default=None)
    parser.add_argument("--cases", action="store_true", help="count the cases of the tests instead, by carrier")
    given = parser.parse_args()
    if given.cases:
        return count_cases()
    is_enough = True
    for form in FORMS:
        found = score(given.data / "megatron_ci", given.sets, form)
        print(f"written as {form}")
        for name, number in found.most_common():
            print(f"{number:8,}  {name}")
        n_right, n = found["read right"] + found["named as not modelled"], found["sets"]
        print(f"{100 * n_right / n:8.2f} % of {n:,} argument sets right or named (bar {100 * LEAST:.0f} %)")
        is_enough &= n_right >= LEAST * n
    return 0 if is_enough else 1


def count_cases() -> int:
    """Counts cases of launch files whose stated sizes are read, by carrier; prints those that are not."""
    total, right, silent = 0, 0, 0
    for carrier in carriers():
        found = Counter[str]()
        for case in cases_of(carrier):
            with TemporaryDirectory() as place:
                off = case_wrong(case, Path(place))
            kind = "right" if not off else "asked" if off[0].startswith("refused") else "wrong without a word"
            found[kind] += 1
            if off:
                print(f"         {carrier}: {case.name}: {off[0][:160]}")
        total, right, silent = total + found.total(), right + found["right"], silent + found["wrong without a word"]
        print(f"{found['right']:4} of {found.total():4} right  {carrier}")
    print(f"{100 * right / total:.1f} % of {total} cases right, {silent} wrong without a word")
    return 0 if silent == 0 and right >= 0.97 * total else 1


def score(folder: Path, most: int | None = None, form: str = "script") -> Counter[str]:
    """Counts what becomes of the argument sets.

    Args:
        most: a random part of them; None: all.
        form: of `FORMS`, that every set is written in.
    """
    chance, found = random.Random(0), Counter[str]()
    with gzip.open(folder / "args.jsonl.gz", "rt", encoding="utf-8") as file:
        sets = [json.loads(line) for line in file]
    sets = sets if most is None else chance.sample(sets, most)
    tables = [pd.read_csv(folder / name, low_memory=False) for name in ("rows.csv.gz", "repeats.csv.gz")]
    rows = pd.concat(tables).set_index("id").to_dict("index")
    with TemporaryDirectory() as place:
        for one in sets:
            file = Path(place) / {"script": "run.sh", "block": "train.log"}.get(form, "model_config.yaml")
            file.write_text(_written(one, form, chance), encoding="utf-8")
            found.update(["sets", *_outcome(file, one, rows.get(one["id"]))])
    return found


def _written(one: Mapping[str, Any], form: str, chance: random.Random) -> str:
    if form == "script":
        return script(one, chance.choice(WAYS))
    return {"MODEL_ARGS": model_args, "sections": sections, "block": block}[form](one)


def _head(file: Path, one: Mapping[str, Any]) -> Head:
    if file.suffix == ".sh":
        return head_of_script(file)
    if file.suffix == ".log":
        return next(runs_of(read_heads(file)))
    n = one["nodes"] * one["gpus_per_node"]  # such a file does not say it
    head = head_of_config(ConfigFiles(read_document(file), n_devices=n))
    if one["training_script"]:  # the program that reads it
        head.facts["program"] = SaidValue(one["training_script"], 0, "program")
    return head


def _outcome(file: Path, one: Mapping[str, Any], row: Mapping[str, Any] | None) -> list[str]:
    try:
        head = _head(file, one)
        job = megatron_job(head)
    except PrismError as error:
        text = str(error)
        return [
            "named as not modelled"
            if NO_FIELD in text or BY_HAND in text
            else f"refused: {text.partition(': ')[2][:80]}"
        ]
    if job.refused:
        return ["named as not modelled"]
    if head.questions():
        return [f"open: {head.questions()[0]}"]
    return [f"wrong: {text}" for text in wrong(one, job, row)] or ["read right"]


if __name__ == "__main__":
    raise SystemExit(main())
