"""Network: the links between devices as the cost model uses them; Tier: one level of nested domains.

Devices are numbered from 0 in the axis order of the plan. A group of a collective is `size` devices whose numbers are `stride`
apart; a hand-over goes from a device of one pipeline stage to the device at the same position of another stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from ..core.arrays import Positions, Values, is_traced
from ..core.bounds import MOST_DEVICES, check_bounds
from ..core.errors import Problem, SpecError


def check_positive(owner: str, **values: float) -> None:
    """Every value is finite and greater than 0; traced values are left out.

    Args:
        owner: whose values they are, for the message: "device h100-sxm".

    Raises:
        SpecError: the first one that is not.
    """
    for name, value in values.items():
        if not is_traced(value) and not 0 < value < float("inf"):
            raise SpecError.of(Problem(name, f"{value}, but it must be finite and greater than 0"), owner)


@dataclass(frozen=True)
class Tier:
    """One level of the network: the link of a device to a peer inside the same domain of this tier."""

    name: str  # nvlink, node, rail, leaf, spine, ...
    n_devices: int  # devices in one domain of this tier
    bytes_per_s: float  # per device and direction, after encoding, before protocol efficiency
    latency_s: float  # one hop
    oversubscription: float = 1.0  # >= 1; divides the bandwidth when all devices use the tier at once
    in_switch: bool = False  # reductions in the switch (NVLS, SHARP)
    source: str = ""

    def __post_init__(self) -> None:
        owner = f"tier {self.name}"
        check_positive(owner, n_devices=self.n_devices, bytes_per_s=self.bytes_per_s)
        check_bounds(SpecError, owner, MOST_DEVICES, n_devices=self.n_devices)
        if not is_traced(self.latency_s) and not 0 <= self.latency_s < float("inf"):
            text = f"{self.latency_s}, but it must be finite and not negative"
            raise SpecError.of(Problem("latency_s", text), owner)
        if not is_traced(self.oversubscription) and self.oversubscription < 1:
            text = f"{self.oversubscription}, but it divides the bandwidth. Use 1.0 (none) or more."
            raise SpecError.of(Problem("oversubscription", text), owner)

    @property
    def effective_bytes_per_s(self) -> float:
        """Bandwidth per device and direction when all devices send through an oversubscribed tier, bytes/s."""
        return self.bytes_per_s / self.oversubscription


class CollectiveTime(NamedTuple):
    """Seconds of one collective and how it is done ("cheapest" where that depends on traced numbers)."""

    seconds: Values
    algorithm: str


@runtime_checkable
class Network(Protocol):
    """Seconds of communication between the devices of a cluster.

    Implementations are frozen dataclasses of plain values, so that clusters that hold them compare by content and can be pickled.
    Rates and latencies among their fields may be traced; seconds are then traced too.

    Notes:
        The cost model is calibrated with separate factors for communication inside a node (the scale-up domain: NVLink) and
        between nodes (the network). `n_node` and `leaves_node` say which of the two applies.
    """

    @property
    def n_devices(self) -> int:
        """Number of devices that the network can join."""
        ...

    @property
    def n_distance(self) -> int:
        """Number of classes of distance that `distances` tells apart."""
        ...

    def of_size(self, n_devices: int) -> Network:
        """Returns a network of the same kind for at least `n_devices`.

        Raises:
            SpecError: there is none.
        """
        ...

    def collective(self, kind: str, n_bytes: float, stride: int, size: int) -> CollectiveTime:
        """Seconds of one collective, and the algorithm that takes them.

        Args:
            kind: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or p2p (then `size` is 2).
            n_bytes: more than 0: the buffer of an all-reduce or broadcast, the gathered size of an all-gather, the unreduced
                size of a reduce-scatter, what one device sends to everybody (itself included) in an all-to-all, the message of
                a send.
            stride: between the numbers of the members.
            size: number of members, at least 2.
        """
        ...

    def n_node(self, stride: int, size: int) -> int:
        """Nodes that a group of `size` devices, `stride` apart, spans; 1 where it stays inside one."""
        ...

    def distances(self, first: Positions, second: Positions) -> Positions:
        """Class of the distance between devices `first` and `second`, 0 (nearest) to `n_distance - 1` (farthest), [edge]."""
        ...

    def leaves_node(self, distance: int) -> bool:
        """Whether a message over that distance goes from node to node."""
        ...

    def send_s(self, n_bytes: Values, distance: int, stride: int) -> Values:
        """Seconds of a message from every device of a pipeline stage to its peer in another stage.

        Args:
            n_bytes: of the message of one device.
            distance: class between the two, as `distances` gives it.
            stride: between the numbers of the two peers of adjacent stages, which is the number of devices of a stage: those that
                send at the same time.
        """
        ...
