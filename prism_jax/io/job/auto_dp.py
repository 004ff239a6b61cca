"""`plan.dp: auto`: the data-parallel degree that fills the cluster, dp = n_devices / (tp * cp * pp).

The same holds where dp is left out and `cluster.n_devices` is given. Where neither is there, dp is 1 and the cluster as large as
the plan.
"""

from __future__ import annotations

from typing import Any

from ...errors import Mistake
from .document import Document

AUTO = "auto"
OTHER_AXES = ("tp", "cp", "pp")


def with_dp(document: Document, found: list[Mistake]) -> Any:
    """Section `plan` with a number for dp; as it is where a degree or the cluster is wrong, which others report."""
    plan, cluster = document.data["plan"], document.data.get("cluster")
    if not isinstance(plan, dict) or plan.get("dp", AUTO) != AUTO:
        return plan
    rest = {name: value for name, value in plan.items() if name != "dp"}
    n_devices = cluster.get("n_devices") if isinstance(cluster, dict) else None
    if n_devices is None:
        if "dp" in plan:
            text = "auto fills the cluster, so it needs cluster.n_devices (GPUs). Give it, or write dp as a number."
            found.append(document.mistake(("plan", "dp"), text))
        return rest
    degrees = [plan.get(axis, 1) for axis in OTHER_AXES]
    if not all(type(count) is int and count >= 1 for count in (n_devices, *degrees)):
        return rest
    product = degrees[0] * degrees[1] * degrees[2]
    if n_devices % product:
        near = max(product, round(n_devices / product) * product)
        text = (
            f"no dp fills the cluster: tp*cp*pp = {'*'.join(map(str, degrees))} = {product} does not divide its {n_devices} "
            f"devices. Change a degree, or try cluster.n_devices={near}."
        )
        found.append(document.mistake(("plan", "dp") if "dp" in plan else ("plan",), text))
        return rest
    return rest | {"dp": n_devices // product}
