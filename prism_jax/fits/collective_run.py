"""Facts about the run of a log of collectives that the log does not state, by options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.use_case import Option, OptionGroup


@dataclass(frozen=True)
class CollectiveRun(OptionGroup):
    """Collective and GPUs of the run, for logs that do not state them.

    Attributes:
        collective: collective: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, p2p.
        n_gpus: GPUs (ranks) that took part.
        n_nodes: number of nodes; default: what the log says, else eight GPUs to a node.
    """

    collective: Annotated[str | None, Option("--collective --op", "NAME")] = None
    n_gpus: Annotated[int | None, Option("--gpus", "N", least=2, most=10_000_000)] = None
    n_nodes: Annotated[int | None, Option("--nodes", "N", least=1, most=10_000_000)] = None
