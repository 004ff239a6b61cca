"""An optimizer on the host: gradients go down while the backward pass runs, the host updates, 16-bit parameters go up as it does.

Source: ZeRO-Offload, arXiv 2101.06840, sections 4 and 5. Its table 4: CPU-Adam takes 0.24 s for 10^9 parameters and 2.57 s
for 10^10 on the two sockets of a DGX-2 node; the devices of a node share them.
"""

from __future__ import annotations

from ..system.hardware import Cluster

HOST_UPDATE_S = 2.57e-10  # of a node, per parameter
PARAMETER_BYTES = 2.0
# PCIe x16 of the generation's hosts, one direction: 3.0 for V100 and T4, 4.0 unless said, 5.0 from Hopper on.
LINK_BYTES_PER_S = 31.5e9
LINK_OF_GENERATION = {"volta": 15.75e9, "turing": 15.75e9, "hopper": 63e9, "blackwell": 63e9, "blackwell-rtx": 63e9}


def host_update_s(cluster: Cluster, n_parameters: float) -> float:
    """Seconds from the last gradient to the last updated parameter on the device.

    Args:
        n_parameters: that the host updates for one device.
    """
    link = LINK_OF_GENERATION.get(cluster.device.generation, LINK_BYTES_PER_S)
    n_sharing = min(cluster.node_size, cluster.n_devices)
    return max(HOST_UPDATE_S * n_sharing, PARAMETER_BYTES / link) * n_parameters
