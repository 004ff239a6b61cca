"""Which layers stand on which stage of Megatron-LM's pipeline: even, with fewer at the ends, or by a layout string.

A layout (`Et*3|(tt|)*6tL`) names the layers of every model chunk, stages separated by `|`: E the embedding, t a layer, m one of
multi-token prediction, L the loss. `x*n` repeats a letter, `(...)*n` a group; commas and spaces mean nothing, and neither do
quotes and escapes that a shell left over.
Source: Megatron-Core, `PipelineParallelLayerLayout`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from .head import Head, SaidValue
from .stated import StatedJob, literal, whole

MOST_LETTERS = 10_000
DEEPEST = 10
_NOISE = re.compile(r"[\s,'\"\\]")
_GROUP = re.compile(r"\(([^()]*)\)(?:\*(\d{1,4}))?")
_REPEAT = re.compile(r"([EtmL|])\*(\d{1,4})")
_LETTERS = re.compile(r"[EtmL|]*")


def layers_of_chunks(layout: str) -> list[int] | None:
    """Numbers of layers of the model chunks that a layout string names, in order; None where it is no layout."""
    text = _NOISE.sub("", layout)
    for _ in range(DEEPEST):
        if "*" not in text and "(" not in text:
            break
        text = _REPEAT.sub(lambda found: found[1] * int(found[2]), text)
        text = _GROUP.sub(lambda found: found[1] * int(found[2] or 1), text)
        if len(text) > MOST_LETTERS:
            return None
    if _LETTERS.fullmatch(text) is None:
        return None
    return [chunk.count("t") for chunk in text.split("|")]


def layout_text(sizes: Sequence[int]) -> str:
    """Returns the layout of chunks with these numbers of layers, in order, runs of alike chunks repeated.

    Example:
        >>> layout_text([1, 2, 2, 2, 1])
        'Et|(tt|)*3tL'
    """
    last = len(sizes) - 1
    middle: list[str] = []
    for text, run in groupby(_layers(size) for size in sizes[1:last]):
        n = len(list(run))
        middle.append(f"({text}|)*{n}" if n > 1 else f"{text}|")
    return f"E{_layers(sizes[0])}|{''.join(middle)}{_layers(sizes[last])}L"


def _layers(n: int) -> str:
    return "t" * n if n < 4 else f"t*{n}"


def put_layer_split(head: Head, job: StatedJob) -> None:
    """States the chunks of every stage, and their layers where they are uneven.

    Raises:
        DataError: a value is no number.
    """
    pp, layers = job.get("plan.pp", 1), job.get("model.n_layers", 0)
    said = head.said("pipeline_model_parallel_layout")
    if said is not None and said.text not in ("None", "[]") and _put_layout(job, said, pp, layers):
        return
    per, count = head.said("num_layers_per_virtual_pipeline_stage"), head.said("num_virtual_stages_per_pipeline_rank")
    stages = head.said("virtual_pipeline_model_parallel_size")
    n = whole(count, 1) or whole(stages, 1) or 1
    n = max(layers // pp // (whole(per, 1) or 1), 1) if per is not None else n
    if pp > 1 and n > 1:
        job.put("plan.virtual_stages", n, count or stages or per)
        job.put("plan.schedule", "interleaved", count or stages or per)
    first, last = head.said("decoder_first_pipeline_num_layers"), head.said("decoder_last_pipeline_num_layers")
    if pp > 1 and (first or last):
        _put_ends(job, first, last, pp, n)


def _put_layout(job: StatedJob, said: SaidValue, pp: int, layers: int) -> bool:
    """States what a layout says; returns whether it is one of this plan."""
    listed = literal(said.text)
    if isinstance(listed, list):  # of a configuration: [["embedding", "decoder"], ["decoder", "loss"]]
        split = [sum(one in ("decoder", "t") for one in chunk) if isinstance(chunk, list) else 0 for chunk in listed]
    else:
        split = layers_of_chunks(said.text)
    if not split or len(split) % pp or (layers and sum(split) != layers):
        job.not_modelled.append(said)
        return False
    if pp == 1:
        return len(split) == 1
    n = len(split) // pp
    if n > 1:
        job.put("plan.virtual_stages", n, said)
        job.put("plan.schedule", "interleaved", said)
    if len(set(split)) > 1:
        job.put("plan.layer_split", split, said)
    return True


def _put_ends(job: StatedJob, first: SaidValue | None, last: SaidValue | None, pp: int, n: int) -> None:
    """States a split by the layers of the first and the last stage, each spread over its chunks."""
    ends = [whole(first, 0), whole(last, 0)]
    inner = pp - sum(one is not None for one in ends)
    n_layers = job.get("model.n_layers", 0)
    rest = n_layers - sum(one or 0 for one in ends)
    stages = [one for one in (ends[0], *[rest // max(inner, 1)] * inner, ends[1]) if one is not None]
    if rest < 0 or sum(stages) != n_layers or any(one % n for one in stages):
        job.leave_out(first, last)
        return
    split = [one // n for one in stages] * n
    if len(set(split)) > 1:
        job.put("plan.layer_split", split, first, last)
