"""Network: what the cost model asks of the links between devices, and nothing else.

Devices are numbered from 0 in the axis order of the plan. A group of a collective is `size` devices whose numbers are `stride`
apart; a hand-over goes from a device of one pipeline stage to the device at the same position of another stage.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from ..._core.arrays import Values
from ..._typing import Positions


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
        """Devices that it can join."""
        ...

    @property
    def n_distance(self) -> int:
        """Number of classes of distance that `distances` tells apart."""
        ...

    def of_size(self, n_devices: int) -> Network:
        """The same kind of network, for at least `n_devices`.

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
        """[edge] class of the distance between devices `first` and `second`, 0 (nearest) to `n_distance - 1` (farthest)."""
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
