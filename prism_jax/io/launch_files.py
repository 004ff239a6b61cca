"""Files that launchers read: which host runs which ranks.

A node holds `node_size` consecutive ranks, so the order of the lines of a hostfile is the order of ranks.

Source: Open MPI, `mpirun` manual (hostfiles, rankfiles); DeepSpeed, "Resource configuration (multi-node)".
"""

from __future__ import annotations

from collections.abc import Sequence


def hostfile(hosts: Sequence[str], node_size: int, spares: Sequence[str] = ()) -> str:
    r"""One line `host slots=N` per node in the order of ranks.

    Args:
        hosts: [slot] names.
        node_size: ranks per host.
        spares: hosts that get no ranks; listed as comments.

    Example:
        >>> hostfile(["b", "a"], 8)
        'b slots=8\na slots=8\n'
    """
    return "".join(f"{host} slots={node_size}\n" for host in hosts) + _comments(spares)


def rankfile(hosts: Sequence[str], node_size: int, spares: Sequence[str] = ()) -> str:
    r"""One line `rank R=host slot=S` per rank; S counts the ranks of a host from 0. Arguments as those of `hostfile`.

    Example:
        >>> rankfile(["b", "a"], 1)
        'rank 0=b slot=0\nrank 1=a slot=0\n'
    """
    lines = [
        f"rank {slot * node_size + local}={host} slot={local}\n"
        for slot, host in enumerate(hosts)
        for local in range(node_size)
    ]
    return "".join(lines) + _comments(spares)


def _comments(spares: Sequence[str]) -> str:
    return "".join(f"# spare: {host}\n" for host in spares)
