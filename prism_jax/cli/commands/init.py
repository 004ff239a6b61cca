"""`prism-jax init [FILE]`: a commented job file to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ..verbosity import say

File = Annotated[str, typer.Argument(metavar="[FILE]", help="YAML file to write.")]
Model = Annotated[
    str, typer.Option("--model", metavar="NAME", help="A preset (`show models`), or a Hugging Face config.json.")
]
ClusterName = Annotated[str, typer.Option("--cluster", metavar="NAME", help="A preset (`show clusters`).")]
Gpus = Annotated[int, typer.Option("--gpus", min=1, max=2**20, help="GPUs of the job.")]
FrameworkName = Annotated[
    str | None, typer.Option("--framework", metavar="NAME", help="Training software (`show frameworks`).")
]
Overwrite = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]


def init(
    file: File = "job.yaml",
    model: Model = "llama-3-8b",
    cluster: ClusterName = "dgx-h100",
    gpus: Gpus = 64,
    framework: FrameworkName = None,
    force: Overwrite = False,
) -> None:
    """Write a commented job file to start from: every field, its default, and what it is."""
    job = app.write_new_job(file, model=model, cluster=cluster, n_devices=gpus, framework=framework, overwrite=force)
    plan = job.plan
    degrees = f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}"
    say(f"wrote {file}: {job.model.name} on {plan.n_devices:,} x {job.cluster.device.name}, {degrees}")
    if not job.memory.fits:
        say("note: no plan was found that fits into memory; this is the one that divides the model most", always=True)
    say(f"next: prism-jax check {file}; prism-jax predict {file}; prism-jax search {file}")
