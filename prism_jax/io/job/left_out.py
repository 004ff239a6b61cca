"""Fields of the plan that a job file may leave out because they follow from others.

`dp`, or `dp: auto`: the degree that fills the cluster, n_devices / (tp * cp * pp), where `cluster.n_devices` is given; where it
is not, dp is 1 and the cluster as large as the plan. `micro_batch`, of models whose devices take their share of the batch at
once: global_batch / dp.
"""

from __future__ import annotations

from typing import Any

from ...errors import Mistake
from ...workload.kinds import KINDS, WorkloadKind
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


def with_micro_batch(document: Document, plan: Any) -> Any:
    """Section `plan` with a micro-batch; as it is where it has one or something is wrong, which others report."""
    kind = _kind(document.data.get("model"))
    if not isinstance(plan, dict) or "micro_batch" in plan or kind is None or not kind.is_whole_batch:
        return plan
    batch, dp = plan.get("global_batch"), plan.get("dp", 1)
    if type(batch) is not int or type(dp) is not int or dp < 1 or batch < dp:
        return plan
    return plan | {"micro_batch": batch // dp}


def _kind(model: Any) -> WorkloadKind | None:
    """Kind of the model of a job file, if its section says one."""
    if isinstance(model, dict) and isinstance(model.get("kind"), str):
        return next((kind for kind in KINDS if kind.name == model["kind"]), None)
    name = model.get("preset") if isinstance(model, dict) else model
    return next((kind for kind in KINDS for preset in kind.presets if preset.name == name), None)
