"""How a published run tells which framework it ran on: words in its notes, its table's path, its source, or its accelerator."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Ranks at which the package's patterns start; within each, more general names are asked later. The notes decide where they name
# the software, then papers and code of Megatron-LM itself, then the table's path, since a repository may hold runs of several
# frameworks, then the source.
NOTES, OWN_PAPERS, TABLE, SOURCE, NOTHING_ELSE = 100, 200, 300, 400, 500


@dataclass(frozen=True)
class SourcePattern:
    """Regular expressions over what a run says of itself, all of which must be found; case does not matter.

    Attributes:
        notes, table, source, gpu: over the notes, the table's path, the publication or repository, and the accelerator; an
            empty one is not asked.
        rank: patterns of all frameworks are asked in this order and the first that matches decides; those of the package start
            at `NOTES`, so that one of the caller's comes first.
    """

    notes: str = ""
    table: str = ""
    source: str = ""
    gpu: str = ""
    rank: int = 0

    def matches(self, *, notes: str, table: str, source: str, gpu: str) -> bool:
        """Whether all of its expressions are found."""
        asked = ((self.notes, notes), (self.table, table), (self.source, source), (self.gpu, gpu))
        return all(re.search(expression, text, re.IGNORECASE) for expression, text in asked if expression)


def in_notes(expression: str, rank: int) -> SourcePattern:
    """Notes that name the software; they must open with a name or hold a word that means nothing else, since "Megatron TFLOPs
    formula" is a convention.
    """
    return SourcePattern(notes=expression, rank=NOTES + rank)


def by_name(expression: str, rank: int, gpu: str = "") -> tuple[SourcePattern, SourcePattern]:
    """A name in the table's path, or else in the source; `gpu` restricts it to some accelerators."""
    return (
        SourcePattern(table=expression, gpu=gpu, rank=TABLE + rank),
        SourcePattern(source=expression, gpu=gpu, rank=SOURCE + rank),
    )
