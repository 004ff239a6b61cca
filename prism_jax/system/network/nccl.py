"""Constants of NCCL: its three wire protocols and the share of link bandwidth that its collectives reach.

Latencies are those of NCCL's own tuner (`src/graph/tuning.cc`, `baseLat` and `hwLat`, microseconds there). A cluster tier states
the hop of the LL128 protocol (see `system/presets/clusters.toml`); the other protocols scale it by NCCL's ratios.
"""

from __future__ import annotations

from .library import CollectiveLibrary, Shares, WireProtocol

# baseLat ring 6.6 / 14 / 8.4, tree 6.8 / 14 / 8.4; hwLat NVLink ring 0.6 / 1.9 / 3.4, network ring 2.7 / 4.0 / 14.
# LL sends a flag with every 4 bytes (the tuner gives it 1/4 of the ring bandwidth); LL128 carries data in 120 of 128 bytes.
# The tree's own network hops are 5.0 / 8.5 / 14.
# network_step_s, tree_step_share: what the tuner's latencies lack of real networks; picked on coarse grids (10 to 30 us, LL 2 to
# 8 us, shares to 1 %) by the squared logarithmic error of all-reduces across nodes from 1 MiB: H100, 4 to 512 nodes (64 MiB from
# 217 to 112 GB/s of bus bandwidth, 1 GiB from 337 to 286; arXiv 2411.13055) and 4 to 1,024 nodes (64 MiB from 230 to 107; NVIDIA,
# GTC), A100, 2 to 16 nodes (Echo, aisimu: nccl-tests). The 8 us are the end of their grid.
# fill_bytes: two A100 (H100) take 42 (29) us longer for 16 MiB than their rate at 512 MiB says (aiconfigurator tables).
PROTOCOLS = (
    WireProtocol("LL", 0.25, 6.6e-6, 6.8e-6, 0.6 / 1.9, 2.7 / 4.0, 5.0 / 4.0, 8e-6, 0.0),
    WireProtocol("LL128", 120 / 128, 14.0e-6, 14.0e-6, 1.0, 1.0, 8.5 / 4.0, 25e-6, 2e6),
    WireProtocol("Simple", 1.0, 8.4e-6, 8.4e-6, 3.4 / 1.9, 14.0 / 4.0, 14.0 / 4.0, 25e-6, 8e6),
)

NCCL = CollectiveLibrary(
    name="nccl",
    protocols=PROTOCOLS,
    # Large messages inside an NVLink domain. Source: our reading of nccl-tests on 8 x A100 and 8 x H100 (aiconfigurator tables,
    # NCCL 2.27, 512 MiB): bus bandwidth over 300 and 450 GB/s.
    scale_up=Shares(all_reduce=0.77, all_gather=0.72, reduce_scatter=0.72, all_to_all=0.69, broadcast=0.77, p2p=0.72),
    # Share of the port rate between nodes. Measured bus bandwidth per port: 48.6 of 50 GB/s on Vista GH200, 45.6 on p5en, 47.7
    # on p6-b200, 42-45 on H100 (METHODS section 4, 16 GiB); send and receive 36 of 50 GB/s (vidur, DGX H100, 64 MiB).
    network=Shares(all_reduce=0.88, all_gather=0.88, reduce_scatter=0.88, all_to_all=0.72, broadcast=0.88, p2p=0.72),
    # In-switch reduction: 445-460 GB/s bus bandwidth on 8 x H100 is 64-69 % of the rate at S (1 + 1/n) bytes per link.
    in_switch_share=0.66,
    in_switch_base_s=25.0e-6,  # NCCL tuner, NVLS base latency
    tree_step_share=0.004,
    pat_bytes=8 * 512e3,  # assumed: 8 channels, of a 4 MiB buffer in 8 slots each (NCCL_BUFFSIZE, NCCL_STEPS)
    peers_in_flight=8,  # NCCL's default channels per peer set
    # A100 clusters reach less: 129 of 200 GB/s per node on Azure ND A100 v4, 16 to 64 GPUs (Echo, nccl-tests).
    network_of_generation=(("ampere", 0.73), ("volta", 0.73)),
    source="NCCL src/graph/tuning.cc; nccl-tests",
)
