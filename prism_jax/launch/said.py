"""What trainers say of a job in sentences: a table of patterns, whose named groups are names of facts.

A pattern is looked for only in lines that hold one of its needles. Every repeat in it is bounded, so that a hostile line costs
time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

GIB, MIB = 2.0**30, 2.0**20
Pairs = Iterator[tuple[str, str]]
MEGATRON, HF, TITAN, MAXTEXT, SWIFT = "Megatron-LM", "HF Trainer", "torchtitan", "MaxText", "ms-swift"
LLAMA_FACTORY, VERL, NANOCHAT, MODDED = "LLaMA-Factory", "verl", "nanochat", "modded-nanogpt"


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


def _groups(needle: bytes, pattern: str) -> Said:
    """Named groups are names; what did not match is not said."""
    compiled = re.compile(pattern)

    def read(text: str) -> Pairs:
        found = compiled.search(text)
        if found is not None:
            yield from ((name, value) for name, value in found.groupdict().items() if value is not None)

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
_SMI_MEMORY = re.compile(r"\d{1,7}MiB {1,4}/ {1,4}(\d{4,7})MiB")


def _smi(text: str) -> Pairs:
    found = _SMI.search(text)
    if found is not None:
        yield "gpu", found[2].strip(" .")
        yield "most_gpu_index", found[1]
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


_MESH = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp|ep|etp|dp)=(-?\d{1,6})")


def _mesh(text: str) -> Pairs:
    for one in _MESH.finditer(text[:1000]):
        yield f"mesh_{one[1]}", one[2]


SAID: tuple[Said, ...] = (
    Said((b"number of parameters on",), _params),
    Said((b"max allocated", b"max reserved", b"max memory allocated"), _memory),
    Said((b" Off ", b" On ", b"MiB /"), _smi),
    Said((b"memory: ", b"tflops", b"TFLOP"), _rates),
    _groups(
        b"padded vocab",
        r"padded vocab \(size: (?P<vocab_size>\d{1,9})\) with \d{1,9} dummy tokens \(new size: (?P<vocab_padded>\d{1,9})\)",
    ),
    _groups(b"using world size", r"using world size: (?P<world_size>\d{1,7})"),
    _groups(b"micro-batches to constant", r"setting number of micro-?batches to constant (?P<grad_accum>\d{1,7})"),
    _groups(b"microbatches to constant", r"setting number of micro-?batches to constant (?P<grad_accum>\d{1,7})"),
)
BEGINS: tuple[Begin, ...] = ()
