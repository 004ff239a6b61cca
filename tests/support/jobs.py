"""Small synthetic jobs that tests simulate: seconds given by hand, every shape compiled in a second or two."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from prism_jax.core.kernels import COMM_AXES, COMPUTE_CLASSES, PASSES
from prism_jax.cost.step import StepCost
from prism_jax.framework.software import Software
from prism_jax.graph.build import build_graph
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.schedule.registry import make_schedule
from prism_jax.simulate.program import Program, program_of
from prism_jax.system.catalog import cluster
from prism_jax.variability.families import Family, LogNormal, Normal
from prism_jax.variability.tree import ClassVariability, Variability
from prism_jax.workload.transformer.spec import TransformerSpec

MODEL = TransformerSpec("tiny", n_layers=8, hidden=512, n_heads=8, ffn_hidden=2048, vocab=1024)
COLLECTIVES = {
    "tp": "all_gather",
    "cp": "p2p",
    "ep": "all_to_all",
    "dp": "all_gather",
    "pp": "p2p",
    "end": "reduce_scatter",
}
COMPUTE_S = (0.6, 0.3, 0.1)  # of one op by compute class
NETWORK = ("all_gather", "reduce_scatter", "p2p")


STATED = Software(
    "flash2", "fused", "fused", "fused", "eager", "fused", False, "none", "typical", dispatcher="alltoall"
)  # nothing is left open


def stated(job: Job) -> Job:
    """The job with nothing left open, so that its step does not stand at a mean over what is."""
    etp = 1 if job.model.has_experts else None
    return replace(job, plan=replace(job.plan, software=STATED, etp=etp), filled=(), open_plan=())


def make_job(variability: Variability | None = None, *, n_micro_batch: int = 4, **plan: object) -> Job:
    """A job of `n_micro_batch` micro-batches; tp 2, pp 2, dp 4 unless said otherwise."""
    given = {"tp": 2, "pp": 2, "dp": 4} | plan
    whole = ParallelPlan(micro_batch=1, global_batch=n_micro_batch * int(given["dp"]), seq_len=512, **given)  # type: ignore[arg-type]
    return Job(MODEL, cluster("llama3-h100", whole.n_devices), whole, variability or Variability())


def make_cost(
    plan: ParallelPlan,
    *,
    tp_comm_s: float = 0.15,
    p2p_s: float = 0.05,
    end_compute_s: float = 0.1,
    end_comm_s: float = 0.4,
    blocking: bool = False,
) -> StepCost:
    """One second per forward and backward of a chunk, split over the compute classes; later chunks are a little slower."""
    n_chunk = plan.n_chunk
    slower = 1.0 + 0.03 * np.arange(n_chunk) / n_chunk
    compute = np.broadcast_to(np.array(COMPUTE_S), (len(PASSES), n_chunk, len(COMPUTE_CLASSES))) * slower[:, None]
    comm = np.zeros((len(PASSES), n_chunk, len(COMM_AXES)))
    comm[:2, :, 0] = tp_comm_s
    edges = np.append(np.full(n_chunk - 1, p2p_s), 0.0)
    end = np.ones(plan.pp)
    return StepCost(
        compute, comm, 0.0 * comm, edges, blocking, end_compute_s * end, end_comm_s * end, 0.0 * end, COLLECTIVES, 1.0, 1.0
    )  # fmt: skip


def make_program(variability: Variability | None = None, **settings: object) -> Program:
    """Program of `make_job` with seconds of `make_cost`; settings of either."""
    names = ("tp_comm_s", "p2p_s", "end_compute_s", "end_comm_s", "blocking")
    job = make_job(variability, **{k: v for k, v in settings.items() if k not in names})  # type: ignore[arg-type]
    cost = make_cost(job.plan, **{k: v for k, v in settings.items() if k in names})  # type: ignore[arg-type]
    plan = job.plan
    schedule = make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages)
    return program_of(job, cost, build_graph(schedule, cost))


def compute_varies(**parts: Family) -> Mapping[str, ClassVariability]:
    """All compute classes with the same families."""
    return dict.fromkeys(COMPUTE_CLASSES, ClassVariability(**parts))


def network_varies(**parts: Family) -> Mapping[str, ClassVariability]:
    """All communication of `COLLECTIVES` with the same families."""
    return dict.fromkeys(NETWORK, ClassVariability(**parts))


EVERYTHING = Variability(
    "everything",
    {
        "gemm": ClassVariability(gpu=LogNormal(0.02), node=LogNormal(0.01), call=Normal(0.02)),
        "attention": ClassVariability(gpu=LogNormal(0.03), node=LogNormal(0.01), call=Normal(0.03)),
        "memory": ClassVariability(call=Normal(0.01)),
        **network_varies(node=LogNormal(0.03), regime=LogNormal(0.08), call=Normal(0.03)),
    },
    step=LogNormal(0.003),
)
