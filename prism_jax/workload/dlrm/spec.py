"""DLRMSpec: a recommendation model as a workload: tables over all devices, dense layers on every one.

All devices meet in the exchange of pooled vectors, twice a step: a plan has `ep = dp`, one group of devices that step together,
and no independent replicas. Source: arXiv 1906.00091 (DLRM), 2008.13535 (DCNv2), MLPerf Training (both as benchmarks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...errors import Problem, SpecError
from ...kernels import COMPUTE_CLASSES
from ...plan.plan import ParallelPlan
from ...software.choices import FUSED
from ..base import Block, BlockRun, Split
from .blocks import DENSE, TABLES, dense_block, dense_bytes, held_by_fullest, tables_block
from .exchange import SizeRule
from .sizes import DLRMSizes


@dataclass(frozen=True)
class DLRMSpec(DLRMSizes):
    """A recommendation model."""

    # --- workload: see `base.Workload` ---

    @property
    def sample_unit(self) -> str:
        """Throughput counts samples."""
        return "samples"

    @property
    def kernel_classes(self) -> tuple[str, ...]:
        """Those that ship with the package; lookups are bound by memory."""
        return COMPUTE_CLASSES

    @property
    def has_experts(self) -> bool:
        """None; its all-to-all carries pooled vectors."""
        return False

    @property
    def sure_software(self) -> dict[str, str]:
        """It has no norms, positions, attention or vocabulary, so nothing is open there; layers have their activation inside."""
        return dict.fromkeys(("norm", "rope", "activation", "cross_entropy"), FUSED) | {"attention": "flash2"}

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Tables, then everything else; one stage."""
        return BlockRun(TABLES, 1, "first", is_unit=False), BlockRun(DENSE, 1)

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, int], ...]:
        """Dense parameters and copied tables are on every device; other tables are divided among all."""
        return (DENSE, 1), (TABLES, plan.dp * plan.cp)

    def frozen_groups(self, plan: ParallelPlan) -> Mapping[str, float]:
        """Both: blocks reduce and apply gradients themselves, beside the backward pass, so that nothing is left for the end."""
        return {TABLES: held_by_fullest(self, plan).element_bytes, DENSE: dense_bytes(self, plan)}

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        return tables_block(self, plan, SizeRule.MAX_OF_MAX) if kind == TABLES else dense_block(self, plan)

    def completed(self, plan: ParallelPlan, node_size: int) -> ParallelPlan:
        """The plan with the group of all devices that the tables are spread over, and what of them shares a host."""
        apart = node_size if 1 < node_size < plan.dp and plan.dp % node_size == 0 else 0
        if (plan.ep, plan.tables.node_size) == (plan.dp, apart):
            return plan
        return replace(plan, ep=plan.dp, tables=replace(plan.tables, node_size=apart))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Pooled vectors of a micro-batch."""
        return plan.element_bytes * plan.micro_batch * self.pooled_width

    def n_params(self) -> int:
        """Tables and dense layers."""
        return self.n_table_params + self.n_dense_params

    def n_params_active(self) -> int:
        """Dense layers and the rows that a sample reads."""
        return self.n_dense_params + round(sum(table.pooling * table.dim for table in self.tables))

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Samples of a step."""
        return plan.global_batch

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Three times the forward products and sums of a sample."""
        products = 2.0 * sum(k * n for _, k, n in self.products)
        pairs = 2.0 * self.n_vector * self.joined_width if self.interaction == "dot" else 0.0
        return 3.0 * plan.global_batch * (products + pairs + sum(table.pooling * table.dim for table in self.tables))

    def deeper(self, n: int) -> DLRMSpec:
        """There is none: its layers differ.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"model {self.name}: layers of a recommendation model differ, so there is no deeper variant")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Only the tables are divided, among all devices."""
        return {
            "tp": Split(1, "parts of a layer"),
            "cp": Split(1, "sequence"),
            "ep": Split(0, "devices that tables are spread over", is_fixed=True),
        }

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """One stage without parameter sharding; every table that a plan names must be there, on devices that are."""
        if plan.pp > 1:
            yield Problem("pp", f"{plan.pp}, but {self.name} is not cut into stages. Use pp=1.")
        if plan.shard_group > 1 or plan.zero_stage > 0:
            field = "zero_stage" if plan.sharding == "none" else "sharding"
            yield Problem(
                field,
                f"{getattr(plan, field)}, but layers of {self.name} are not sharded. Use zero_stage=0 and sharding=none.",
            )
        if plan.recompute != "none":
            yield Problem("recompute", f"{plan.recompute}, but {self.name} keeps its activations. Use recompute=none.")
        known = {table.name: table for table in self.tables}
        for name, shard in plan.tables.of:
            if name not in known:
                yield Problem("tables", f"{name!r}, but {self.name} has {_some(list(known))}")
            elif max(shard.devices, default=0) >= plan.dp:
                yield Problem("tables", f"{name}: {shard}, but there are devices 0 to {plan.dp - 1}")
            elif shard.n_part > {"row": known[name].rows, "column": known[name].dim}.get(shard.way, shard.n_part):
                yield Problem(
                    "tables", f"{name}: {shard}, but it has {known[name].rows} rows of {known[name].dim} elements"
                )
            elif shard.n_part > plan.dp:
                yield Problem("tables", f"{name}: {shard}, but there are {plan.dp} devices")


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
