"""What a person should know of a capture, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from .fusion import fused
from .program import RankProgram

_ABOUT = {
    "eager": "every operation is a kernel of its own",
    "fused": "chains of operations of which each reads what the one before made for it alone are a kernel each",
    "inductor": "pointwise operations between products are merged, as torch.compile does",
    "megatron": "the chains that Megatron-LM has kernels for are merged",
    "xla": "pointwise operations up to the next reduction are merged, as XLA does",
}


def capture_notes(program: RankProgram) -> Iterator[str]:
    """Source, fusion, and what was assumed where the code does not say it."""
    versions = ", ".join(f"{name} {version}" for name, version in program.versions.items())
    of = " of ".join(part for part in (versions or program.source, f"{program.world:,} ranks") if part)
    yield f"captured from {of}: {len(program.classes)} classes, {program.n_rows:,} rows"
    before, after = program.n_rows, sum(len(fused(one, program.fusion).rows) for one in program.classes)
    merged = f", {before:,} rows become {after:,}" if after != before else ""
    yield f"fusion = {program.fusion}: {_ABOUT[program.fusion]}{merged}"
    for sentence in program.assumptions:
        yield f"assumed: {sentence}"
