"""Constants of NCCL's three wire protocols and the share of link bandwidth that collectives reach.

Latencies are those of NCCL's own tuner (`src/graph/tuning.cc`, `baseLat` and `hwLat`, microseconds there). A cluster tier states
the hop of the LL128 protocol (see `system/presets/clusters.toml`); the other protocols scale it by NCCL's ratios.
"""

from __future__ import annotations

from typing import NamedTuple


class Protocol(NamedTuple):
    """One way of moving bytes.

    Attributes:
        bandwidth: share of the Simple protocol's bandwidth.
        base_ring_s, base_tree_s: start of a collective.
        scale_up_hop, network_hop: hop latency over that of LL128.
        fill_bytes: what must be under way inside the node before links run at full rate (chunks in all channels).
    """

    name: str
    bandwidth: float
    base_ring_s: float
    base_tree_s: float
    scale_up_hop: float
    network_hop: float
    fill_bytes: float


# baseLat ring 6.6 / 14 / 8.4, tree 6.8 / 14 / 8.4; hwLat NVLink ring 0.6 / 1.9 / 3.4, network ring 2.7 / 4.0 / 14.
# LL sends a flag with every 4 bytes (the tuner gives it 1/4 of the ring bandwidth); LL128 carries data in 120 of 128 bytes.
# fill_bytes: two A100 (H100) take 42 (29) us longer for 16 MiB than their rate at 512 MiB says (aiconfigurator tables).
PROTOCOLS = (
    Protocol("LL", 0.25, 6.6e-6, 6.8e-6, 0.6 / 1.9, 2.7 / 4.0, 0.0),
    Protocol("LL128", 120 / 128, 14.0e-6, 14.0e-6, 1.0, 1.0, 2e6),
    Protocol("Simple", 1.0, 8.4e-6, 8.4e-6, 3.4 / 1.9, 14.0 / 4.0, 8e6),
)

# Share of the link rate in large messages inside an NVLink domain. Source: our reading of nccl-tests on 8 x A100 and 8 x H100
# (aiconfigurator tables, NCCL 2.27, 512 MiB): bus bandwidth over 300 and 450 GB/s.
SCALE_UP_SHARE = {
    "all_reduce": 0.77,
    "all_gather": 0.72,
    "reduce_scatter": 0.72,
    "all_to_all": 0.69,
    "broadcast": 0.77,
    "p2p": 0.72,
}
# In-switch reduction: 445-460 GB/s bus bandwidth on 8 x H100 is 64-69 % of the rate at S (1 + 1/n) bytes per link.
IN_SWITCH_SHARE = 0.66
IN_SWITCH_BASE_S = 25.0e-6  # NCCL tuner, NVLS base latency

# Share of the port rate between nodes. Measured bus bandwidth per port: 48.6 of 50 GB/s on Vista GH200, 45.6 on p5en, 47.7 on
# p6-b200, 42-45 on H100 (METHODS section 4, 16 GiB); send and receive 36 of 50 GB/s (vidur, DGX H100, 64 MiB).
NETWORK_SHARE = {
    "all_reduce": 0.88,
    "all_gather": 0.88,
    "reduce_scatter": 0.88,
    "all_to_all": 0.72,
    "broadcast": 0.88,
    "p2p": 0.72,
}
# A100 clusters reach less of it: 129 of 200 GB/s per node on Azure ND A100 v4, 16 to 64 GPUs (Echo, nccl-tests).
GENERATION_NETWORK_SHARE = {"ampere": 0.73, "volta": 0.73}
PEERS_IN_FLIGHT = (
    8  # point-to-point transfers an all-to-all keeps going at a time (NCCL's default channels per peer set)
)
