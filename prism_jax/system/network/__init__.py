"""Networks: seconds of collectives and of hand-overs between the devices of a cluster."""

from .base import CollectiveTime as CollectiveTime, Network as Network
from .kinds import LIBRARIES as LIBRARIES, NETWORKS as NETWORKS, NetworkKind as NetworkKind
from .library import CollectiveLibrary as CollectiveLibrary, Shares as Shares, WireProtocol as WireProtocol
from .measured import (
    MeasuredCollectives as MeasuredCollectives,
    MeasuredCurve as MeasuredCurve,
    MeasuredNetwork as MeasuredNetwork,
)
from .nccl import NCCL as NCCL
from .tier import Tier as Tier
from .tiered import TieredNetwork as TieredNetwork
