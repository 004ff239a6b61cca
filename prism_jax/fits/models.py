"""The models that `prism-jax fit` fits: one line each, from which the command, its help and the model itself are found.

The table lies here and not in `inference`, whose import takes JAX and NumPyro: `--help` needs the names and lines alone.
`CollectiveRun` is what a person says of the run of a log of collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, NamedTuple

from .._inference_loader import inference
from ..core.errors import FitError
from ..core.registry import did_you_mean
from ..core.use_case import Option, OptionGroup


class FitModel(NamedTuple):
    """Module and description of a model of fits.

    Attributes:
        place: module and class, a subclass of `inference.engine.model.Model`; imported when it is fitted.
        help: its line in `prism-jax fit --help`; empty: it is no command, and known to Python alone.
        file: name of its measurements in the example of the help; empty: NAME.csv.
    """

    place: str
    help: str = ""
    file: str = ""


MODELS = {
    "fleet": FitModel(
        "inference.fleet.model.FleetModel",
        "Fit the differences between GPUs and nodes to kernel times per GPU.",
        "times.csv",
    ),
    "steps": FitModel(
        "inference.steps.model.StepsModel", "Fit the variation of steps, runs and systems to step times."
    ),
    "collectives": FitModel(
        "inference.collectives.model.Collectives",
        "Fit latency, bandwidth and noise of collectives to nccl-tests logs or tables.",
        "all_reduce.log",
    ),
    "links": FitModel(
        "inference.links.NodeLinks",
        "Fit how slow the links of nodes are, for good and in passing, to nccl-tests over days.",
    ),
    "kernels": FitModel(
        "inference.kernels.model.Kernels",
        "Fit the efficiency of GEMM and attention by shape to kernel times.",
        "gemm.csv",
    ),
    "overlap": FitModel("inference.overlap.OverlapModel", "Fit how much communication slows concurrent kernels."),
    "failures": FitModel(
        "inference.durations.failures.Failures",
        "Fit failure rates per GPU, node and job to counts of several clusters.",
    ),
    "repairs": FitModel(
        "inference.durations.repairs.Repairs",
        "Fit times between failures, repairs and group losses to a log of node failures.",
    ),
    "revocation": FitModel(
        "inference.durations.revocation.Revocation",
        "Fit how long spot nodes stay, by zone, to recorded availability or lifetimes.",
        "spells.csv",
    ),
    "ladder": FitModel(
        "inference.ladder.Ladder", "Fit a floor and a rate to step times at several batch sizes on one instance."
    ),
    "saves": FitModel(
        "inference.saves.SavesModel", "Fit seconds of checkpoints to the sizes of their files on one storage."
    ),
    "lengths": FitModel("inference.work.LengthsModel", "Fit lengths of documents, for the work of micro-batches."),
    "routing": FitModel(
        "inference.work.RoutingModel", "Fit how unevenly experts are loaded to counts of their tokens."
    ),
    "startup": FitModel("inference.startup.Startup", "Fit provisioning, staging and booting of cloud machines."),
}
"""Model -> where it is; whoever has a model of another place adds it."""


def model_named(name: str) -> Any:
    """The model called `name`, an `inference.engine.model.Model`; imports JAX and NumPyro.

    Raises:
        FitError: there is none.
    """
    if name not in MODELS:
        raise FitError(f"model {name!r} is unknown; known are {', '.join(MODELS)}{did_you_mean(name, MODELS, '')}")
    inference()
    module, _, kind = MODELS[name].place.rpartition(".")
    return getattr(import_module(module), kind)()


def columns_of(model: str, **_: Any) -> Sequence[Any]:
    """Columns of the measurements that a model takes, as `inference.data.columns.ModelColumn`."""
    return model_named(model).columns


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
