"""`prism-jax capture SOURCE`: reads off a training step what its ranks run, on one machine without a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ...errors import DataError
from ..options import Json
from ..result import emit

AXES = ("tp", "pp", "dp", "fsdp", "ep", "cp")
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="What is captured: a file and what it defines (train.py:build), HLO text, execution traces, a job file.",
    ),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the program to FILE (NAME.capture.gz).")
]
World = Annotated[int | None, typer.Option("--world", "--devices", min=1, help="Ranks of the job.")]
Degree = Annotated[int | None, typer.Option(min=1, help="Ranks along this axis of the mesh.")]
Axis = Annotated[
    list[str] | None,
    typer.Option(
        "--axis", metavar="NAME=SIZE", help="Another dimension of the mesh; may be repeated, outermost first."
    ),
]
MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", min=1, help="Micro-batches of a step per data-parallel rank.")
]
Samples = Annotated[int | None, typer.Option("--samples", min=1, help="Samples of a step of the whole job.")]
Tokens = Annotated[int | None, typer.Option("--tokens", min=0, help="Tokens of a sample; 0 where it is no sequence.")]
Fusion = Annotated[
    str | None,
    typer.Option("--fusion", metavar="POLICY", help="eager, fused, inductor, megatron or xla; what is merged."),
]
FrontEndName = Annotated[str, typer.Option("--front-end", metavar="NAME", help="What reads the source, if unclear.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the front end alone; may be repeated."),
]
Name = Annotated[str, typer.Option("--name", help="Name of the program; by default that of the source.")]


def capture(
    source: Source,
    output: Output = None,
    world: World = None,
    tp: Degree = None,
    pp: Degree = None,
    dp: Degree = None,
    fsdp: Degree = None,
    ep: Degree = None,
    cp: Degree = None,
    axis: Axis = None,
    micro_batches: MicroBatches = None,
    samples: Samples = None,
    tokens: Tokens = None,
    fusion: Fusion = None,
    front_end: FrontEndName = "",
    option: Options = None,
    name: Name = "",
    json: Json = False,
) -> None:
    """Capture a training step from its code, on one machine without a GPU."""
    degrees = dict(zip(AXES, (tp, pp, dp, fsdp, ep, cp), strict=True))
    axes = {one: size for one, size in degrees.items() if size is not None}
    axes |= {key: _size(key, value) for key, value in _pairs("--axis", axis).items()}
    run = app.run_capture(
        source,
        output=output,
        front_end=front_end,
        world=world,
        axes=axes,
        micro_batches=micro_batches,
        samples_per_step=samples,
        tokens_per_sample=tokens,
        fusion=fusion,
        name=name,
        options=_pairs("--option", option),
    )
    emit(run.report, json)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """NAME=VALUE texts."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise DataError(f"{option}: {text!r}, but it must be NAME=VALUE")
        if key in found:
            raise DataError(f"{option}: {key} is given twice. Keep one.")
        found[key] = value
    return found


def _size(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0):
        raise DataError(f"--axis {key}: {text!r}, but it must be a whole number of ranks")
    return int(text)
