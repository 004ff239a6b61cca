"""What differs between two recordings of `benchmarks.reference`, and which of it is meant."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Values = dict[str, Any]

FP32_BUFFERS = "pipeline buffers of fp32 plans hold activations of 4 bytes, not of 2"
ONE_EMBEDDING = "ZB-V holds embedding and head on one stage: a tied embedding has no copy whose gradients are exchanged"
WHOLE_NORMS = (
    "sharded norms, routers and the final norm are gathered whole by every tensor-parallel rank, as they are held"
)
GATHERED_EXPERTS = "multi-token-prediction modules under parameter sharding: their experts are gathered as experts"
OWN_MEMORY = "jobs of nanotron are held in memory by the rules of nanotron, not of Megatron-LM"
POSSIBLE_HEADS = (
    "heads that a row does not state are as many as its tensor parallelism divides: 96, not 108 over 8 GPUs"
)
LARGEST_UNIT = "the largest unit that parameter sharding gathers may be a multi-token-prediction module"
_TIMES = ("noise_free_s", "p50_s", "p95_s")
# Differences from revision 9d6485c that are meant: (pattern of ids, pattern of quantities) -> why. Patterns as in a shell.
INTENDED: dict[tuple[str, str], str] = {
    ("rows/steps/AI-Hypercomputer-tpu-recipes/*", "memory_bytes"): LARGEST_UNIT,
    ("rows/steps/eth-easl-sailor/*", "memory_bytes"): FP32_BUFFERS,
    ("grid/schedules/*-fp32", "memory_bytes"): FP32_BUFFERS,
    ("grid/precision/fp32-*", "memory_bytes"): FP32_BUFFERS,
    **{("grid/schedules/zb_v-gpt2-xl-fp32", time): ONE_EMBEDDING for time in _TIMES},
    **{("grid/embeddings/llama-1b-zb_v", time): ONE_EMBEDDING for time in _TIMES},
    **{("grid/sharding/*-pipeline", time): WHOLE_NORMS for time in _TIMES},
    **{("rows/steps/bigscience-workshop-bigscience/*", time): WHOLE_NORMS for time in _TIMES},
    **{("rows/steps/NVIDIA-NeMo-Framework-user-guide-docs.nvidia.com/*", time): WHOLE_NORMS for time in _TIMES},
    **{("rows/steps/Rapid-LLM-UCI-4xA100-measurements/*", time): WHOLE_NORMS for time in _TIMES},
    **{("rows/steps/yanring-Megatron-MoE-ModelZoo/*", time): WHOLE_NORMS for time in _TIMES},
    **{("rows/steps/AI-Hypercomputer-tpu-recipes/*", time): GATHERED_EXPERTS for time in _TIMES},
    **{("grid/frameworks/nanotron", what): OWN_MEMORY for what in ("memory_bytes", "fits")},
    **{("rows/*/huggingface-nanotron*", what): OWN_MEMORY for what in ("memory_bytes", "fits")},
    **{("rows/steps/*/bigsci-003[6-9]", what): POSSIBLE_HEADS for what in (*_TIMES, "memory_bytes")},
}


@dataclass(frozen=True)
class Difference:
    """A quantity of a job that is not the same; `relative` is inf where a number is missing or it is none."""

    id: str
    quantity: str
    old: Any
    new: Any
    relative: float

    @property
    def group(self) -> str:
        folders = self.id.split("/")[:-1]
        return f"{'/'.join(folders[:2])}: {self.quantity}"

    @property
    def reason(self) -> str:
        """Why it is meant; empty if it is not."""
        fitting = (
            why for (id, what), why in INTENDED.items() if fnmatchcase(self.id, id) and fnmatchcase(self.quantity, what)
        )
        return next(fitting, "")

    def line(self) -> str:
        size = f"  ({self.new / self.old - 1.0:+.2e})" if math.isfinite(self.relative) and self.old else ""
        return f"    {self.id}  {self.quantity}: {self.old} -> {self.new}{size}"


def compare(old_file: Path, new_file: Path, tolerance: float, common: bool) -> int:
    """Prints what differs; 1 if something does that is not intended, else 0."""
    old_whole, new_whole = (json.loads(file.read_text(encoding="utf-8")) for file in (old_file, new_file))
    tell_settings(old_whole["about"], new_whole["about"])
    old, new = ({**whole["jobs"], **whole["searches"]} for whole in (old_whole, new_whole))
    ids = [id for id in old if id in new] if common else [*old, *(id for id in new if id not in old)]
    every = [one for id in ids for one in differences(id, old.get(id), new.get(id))]
    wrong = [one for one in every if one.relative > tolerance]
    print(f"{len(ids) - len({one.id for one in wrong})} of {len(ids)} jobs and searches agree to {tolerance:g}")
    tell_largest(every)
    meant, strange = [one for one in wrong if one.reason], [one for one in wrong if not one.reason]
    tell("intended", meant)
    tell("NOT INTENDED", strange)
    return 1 if strange or not ids else 0


def differences(id: str, old: Values | None, new: Values | None) -> Iterator[Difference]:
    """All quantities of one job with how far they differ; of one that is missing or refused in one file, only that."""
    if old is None or new is None:
        before, after = ("missing" if one is None else "there" for one in (old, new))
        yield Difference(id, "job", before, after, math.inf)
        return
    was, now = flat(old), flat(new)
    refused = "error" in was or "error" in now
    for quantity in ["error"] if refused else [*was, *(name for name in now if name not in was)]:
        a, b = was.get(quantity), now.get(quantity)
        yield Difference(id, quantity, a, b, relative(a, b))


def flat(values: Values, before: str = "") -> Values:
    """Nested objects as names with dots."""
    found: Values = {}
    for name, value in values.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return found


def relative(old: Any, new: Any) -> float:
    """Difference over the larger of two numbers; of anything else 0 if equal and inf if not."""
    if old == new or (old != old and new != new):
        return 0.0
    if any(
        isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
        for value in (old, new)
    ):
        return math.inf
    return abs(new - old) / max(abs(old), abs(new))


def tell_settings(old: Document, new: Document) -> None:
    """Revisions, and what else was not the same."""
    print(f"old: {old['revision']}, new: {new['revision']}")
    for name in old:
        if name not in ("revision", "fingerprint") and old[name] != new.get(name):
            print(f"note: {name} differs too: {old[name]} -> {new.get(name)}")


def tell_largest(every: list[Difference]) -> None:
    """Largest difference of every quantity that is measured, not counted."""
    largest: dict[str, float] = {}
    for one in every:
        if math.isfinite(one.relative) and isinstance(one.old, float):
            largest[one.quantity] = max(largest.get(one.quantity, 0.0), one.relative)
    print("largest relative difference: " + ", ".join(f"{name} {size:.2g}" for name, size in largest.items()))


def tell(title: str, found: list[Difference]) -> None:
    """All differences by group, largest group first."""
    print(f"{title}: {len(found)} differences")
    groups: dict[str, list[Difference]] = defaultdict(list)
    for one in found:
        groups[one.group + (f" [{one.reason}]" if one.reason else "")].append(one)
    for name, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(f"  {name}: {len(members)}")
        for one in sorted(members, key=lambda one: -one.relative):
            print(one.line())
