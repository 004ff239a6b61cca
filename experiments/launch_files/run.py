"""Are the argument sets of Megatron-LM's own tests read right when they are written as launch scripts?

python -m experiments.launch_files.run [--data ../shared/data] [--sets N]

Every set becomes a script in one of four ways (plain, an array, one quoted string behind `eval`, a function with positional
arguments). Counted are values that the set states and the import has otherwise, and sizes that follow from Megatron's defaults,
against the columns of the table. The exit code is 1 where fewer than 98 % of the sets are right.
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
from prism_jax.launch.megatron import megatron_job
from prism_jax.launch.programs import head_of_script
from prism_jax.launch.stated import StatedJob

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
WAYS = ("plain", "array", "quoted", "function")
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
    given = parser.parse_args()
    found = score(given.data / "megatron_ci", given.sets)
    for name, number in found.items():
        print(f"{number:6,}  {name}")
    n_right, n = found["read right"] + found["named as not modelled"], found["sets"]
    print(f"{100 * n_right / n:.2f} % of {n:,} argument sets right or named (bar {100 * LEAST:.0f} %)")
    return 0 if n_right >= LEAST * n else 1


def score(folder: Path, most: int | None = None) -> Counter[str]:
    """Counts what becomes of the argument sets.

    Args:
        most: a random part of them; None: all.
    """
    chance, found = random.Random(0), Counter[str]()
    with gzip.open(folder / "args.jsonl.gz", "rt", encoding="utf-8") as file:
        sets = [json.loads(line) for line in file]
    sets = sets if most is None else chance.sample(sets, most)
    tables = [pd.read_csv(folder / name, low_memory=False) for name in ("rows.csv.gz", "repeats.csv.gz")]
    rows = pd.concat(tables).set_index("id").to_dict("index")
    with TemporaryDirectory() as place:
        file = Path(place) / "run.sh"
        for one in sets:
            file.write_text(script(one, chance.choice(WAYS)), encoding="utf-8")
            found.update(["sets", *_outcome(file, one, rows.get(one["id"]))])
    return found


def _outcome(file: Path, one: Mapping[str, Any], row: Mapping[str, Any] | None) -> list[str]:
    try:
        head = head_of_script(file)
        job = megatron_job(head)
    except PrismError as error:
        text = str(error)
        return [
            "named as not modelled"
            if "no field of a job describes" in text
            else f"refused: {text.partition(': ')[2][:80]}"
        ]
    if job.refused:
        return ["named as not modelled"]
    if head.questions():
        return [f"open: {head.questions()[0]}"]
    return [f"wrong: {text}" for text in wrong(one, job, row)] or ["read right"]


if __name__ == "__main__":
    raise SystemExit(main())
