"""Arguments and results of a user's `build(layout)`, and the dimensions of the device mesh.

    def build(layout):
        model = GPT().to(layout.device)
        fully_shard(model, mesh=layout.mesh["fsdp"])
        tokens = torch.zeros(4, 1024, dtype=torch.long)
        return model, (tokens,), lambda logits: logits.float().mean(), torch.optim.AdamW(model.parameters())

A function that takes no argument will do for a job without mesh. Where there is a pipeline, `build` makes the part of the model
of `layout.stage`, and takes activations as inputs on every stage but the first; loss is None on every stage but the last.

Dimensions lie outermost first, as launchers of PyTorch lay ranks out: pipeline, data (replicated, then sharded), experts,
context, tensor. So ranks of one tensor-parallel group are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from ...core.errors import DataError
from ...workload.captured.program import SHARDED, USUAL_ROLES

RETURNS = "(model, inputs, loss) or (model, inputs, loss, optimizer), or a dict with these keys"
KEYS = ("model", "inputs", "loss", "optimizer")


@dataclass
class RankLayout:
    """Place of the captured rank in the job.

    Attributes:
        mesh: `torch.distributed.DeviceMesh` whose dimensions have the names given on the command line: `layout.mesh["tp"]`.
        device: for tensors and modules. It is the CPU: fake tensors have no memory, and no GPU is needed.
        rank, world: of the captured rank, and ranks of the job.
        sizes: dimension of the mesh -> its size.
        n_stages: of the pipeline.
    """

    mesh: Any
    device: Any
    rank: int
    world: int
    sizes: Mapping[str, int]
    n_stages: int
    _stage: int = 0
    asked: set[str] = field(default_factory=set)

    @property
    def stage(self) -> int:
        """Pipeline stage of the rank, from 0."""
        self.asked.add("stage")
        return self._stage

    @property
    def is_first(self) -> bool:
        """Whether the stage takes the data."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether the stage has the loss."""
        return self.stage == self.n_stages - 1

    def size(self, axis: str) -> int:
        """Ranks along a dimension of the mesh; 1 where it has no such dimension."""
        return self.sizes.get(axis, 1)


@dataclass(frozen=True)
class Built:
    """Checked return value of `build`.

    Attributes:
        model: `torch.nn.Module`, parallel as the user made it.
        inputs: tensors of one micro-batch.
        loss: output of the model -> scalar; None: the output is the scalar, or goes to the next stage.
        update: the step of the optimizer; None: not captured.
        optimizer: class name of what updates; empty for a function.
    """

    model: Any
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Any] | None
    update: Callable[[], Any] | None
    optimizer: str = ""


def checked(value: object, torch: Any, where: str) -> Built:
    """Checks the parts that `build` returned.

    Raises:
        DataError: not the contract; says which part.
    """
    if isinstance(value, Mapping):
        if unknown := sorted(str(key) for key in value if key not in KEYS):
            raise DataError(f"{where}: returned the key {unknown[0]!r}, but must return {RETURNS}")
        value = tuple(value.get(key) for key in KEYS)
    if not isinstance(value, (tuple, list)) or not 2 <= len(value) <= 4:
        raise DataError(f"{where}: returned {_kind(value)}, but must return {RETURNS}")
    model, inputs, loss, optimizer = (*value, None, None)[:4]
    if not isinstance(model, torch.nn.Module):
        raise DataError(f"{where}: the model is {_kind(model)}, but must be a torch.nn.Module")
    inputs = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
    if not isinstance(inputs, (tuple, list)) or not any(isinstance(one, torch.Tensor) for one in inputs):
        raise DataError(f"{where}: the inputs are {_kind(inputs)}, but must be a tuple of tensors of one micro-batch")
    if loss is not None and not callable(loss):
        raise DataError(f"{where}: the loss is {_kind(loss)}, but must be a function of the model's output, or None")
    return Built(model, tuple(inputs), loss, *_update(optimizer, torch, where))


def _update(optimizer: Any, torch: Any, where: str) -> tuple[Callable[[], Any] | None, str]:
    if optimizer is None:
        return None, ""
    if isinstance(optimizer, torch.optim.Optimizer):
        return optimizer.step, type(optimizer).__name__
    if callable(optimizer):
        return optimizer, ""
    text = "but must be a torch.optim.Optimizer or a function that updates the parameters"
    raise DataError(f"{where}: the optimizer is {_kind(optimizer)}, {text}")


def _kind(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


_ROLES = ("pp", "dp", "ep", "cp", "tp")


class CollectiveGroup(NamedTuple):
    """Group of the ranks of one collective.

    Attributes:
        axis: dimension of the mesh, the largest one where a group spans several.
        ranks, stride: members, and the distance between neighbours.
    """

    axis: str
    ranks: int
    stride: int


def mesh_axes(axes: Mapping[str, int], world: int) -> dict[str, int]:
    """All dimensions in the order of the mesh; the ranks that `axes` leave over are "dp".

    Raises:
        DataError: the axes do not fill the world.
    """
    found = dict(axes)
    rest = world // max(prod(found.values()), 1)
    if rest > 1 and "dp" in found:
        sizes = " * ".join(f"{axis}={size}" for axis, size in found.items())
        raise DataError(
            f"--world: {world:,}, but {sizes} = {world // rest:,}. Leave --dp out, or make it {found['dp'] * rest}."
        )
    if rest > 1 or not found:
        found["dp"] = rest
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(axis: str) -> tuple[int, bool]:
    role = USUAL_ROLES.get(axis.lower(), "dp")
    return _ROLES.index(role), axis.lower() in SHARDED


def rank_of_stage(axes: Mapping[str, int], stage: int) -> int:
    """The first rank of a pipeline stage."""
    return stage * stride_of(axes, pipeline_axis(axes)) if stage else 0


def pipeline_axis(axes: Mapping[str, int]) -> str:
    """Name of the pipeline's dimension; empty where there is none."""
    return next((axis for axis in axes if USUAL_ROLES.get(axis.lower()) == "pp"), "")


def data_parallel_size(axes: Mapping[str, int]) -> int:
    """Replicas and shards of the batch together."""
    return prod(size for axis, size in axes.items() if USUAL_ROLES.get(axis.lower(), "dp") in ("dp", "ep"))


def stride_of(axes: Mapping[str, int], axis: str) -> int:
    """Distance between neighbours along a dimension."""
    names = list(axes)
    return prod(axes[name] for name in names[names.index(axis) + 1 :])


def group_of(axes: Mapping[str, int], members: Sequence[int]) -> CollectiveGroup:
    """Returns the dimension that a group of ranks runs along, by the coordinates in which its members differ."""
    first = members[0]
    along = [axis for axis in axes if any(_at(axes, axis, rank) != _at(axes, axis, first) for rank in members)]
    axis = max(along, key=lambda name: axes[name], default=next(iter(axes)))
    stride = members[1] - first if len(members) > 1 else 1
    return CollectiveGroup(axis, len(members), max(stride, 1))


def _at(axes: Mapping[str, int], axis: str, rank: int) -> int:
    return rank // stride_of(axes, axis) % axes[axis]
