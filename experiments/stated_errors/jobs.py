"""Jobs of all shapes and kinds of variability, and what they are made of."""

from __future__ import annotations

from collections.abc import Mapping

from prism_jax.core.kernels import COLLECTIVES, COMPUTE_CLASSES
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.variability.families import Family, Gamma, LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import ClassVariability, Stall, Variability
from prism_jax.workload.transformer.spec import TransformerSpec

MODEL = TransformerSpec("small", n_layers=16, hidden=2048, n_heads=16, ffn_hidden=8192, vocab=32_000)
N_MICRO_BATCH = 8


def compute_varies(**parts: Family) -> dict[str, ClassVariability]:
    """All compute classes with the same families."""
    return dict.fromkeys(COMPUTE_CLASSES, ClassVariability(**parts))


def network_varies(**parts: Family) -> dict[str, ClassVariability]:
    """All collectives with the same families."""
    return dict.fromkeys(COLLECTIVES, ClassVariability(**parts))


def job_of(variability: Variability, *, dp: int, **plan: object) -> Job:
    """The job of a plan."""
    whole = ParallelPlan(micro_batch=1, global_batch=N_MICRO_BATCH * dp, seq_len=2048, dp=dp, **plan)  # type: ignore[arg-type]
    return Job(MODEL, cluster("llama3-h100", whole.n_devices), whole, variability)


SHAPES: Mapping[str, Mapping[str, object]] = {
    "one GPU": {"dp": 1},
    "dp 64": {"dp": 64},
    "tp 8": {"dp": 4, "tp": 8},
    "pp 4": {"dp": 8, "pp": 4},
    "pp 8": {"dp": 2, "pp": 8, "tp": 2},
    "cp 2": {"dp": 8, "cp": 2},
    "fsdp": {"dp": 16, "sharding": "fsdp"},
    "interleaved": {"dp": 8, "pp": 4, "schedule": "interleaved", "virtual_stages": 2},
    "zero bubble": {"dp": 8, "pp": 4, "schedule": "zb_h1"},
}
MIXED_CALLS = compute_varies(gpu=LogNormal(0.02), node=LogNormal(0.01), call=Normal(0.02))
TREES: Mapping[str, Variability] = {
    "normal": Variability("", compute_varies(gpu=Normal(0.03), call=Normal(0.03))),
    "log-normal 20%": Variability("", compute_varies(gpu=LogNormal(0.2))),
    "mixture": Variability("", compute_varies(gpu=Mixture(0.01, 0.02, 1.15, 0.02), call=Normal(0.01))),
    "mixed network": Variability(
        "", network_varies(node=Mixture(0.05, 0.05, 2.0, 0.1)) | compute_varies(gpu=Normal(0.02))
    ),
    "gamma": Variability("", compute_varies(gpu=Gamma(0.1), call=Gamma(0.05))),
    "Student t 2.1": Variability("", compute_varies(gpu=StudentT(0.02, 2.1))),
    "Student t 4": Variability("", compute_varies(gpu=StudentT(0.02, 4.0), call=Normal(0.02))),
    "stalls": Variability("", MIXED_CALLS, stalls=(Stall(0.05, 0.0, 0.2), Stall(0.0, 0.001, 0.5))),
    "frequent stalls": Variability("", MIXED_CALLS, stalls=(Stall(0.3, 0.002, 0.05),)),
    "regimes": Variability(
        "", MIXED_CALLS | network_varies(node=LogNormal(0.03), regime=LogNormal(0.15)), LogNormal(0.01)
    ),
}


def mixed_jobs() -> dict[str, Job]:
    """Twenty-five jobs: every kind of variability in two or three shapes."""
    shapes, found = list(SHAPES), {}
    for i, (name, tree) in enumerate(TREES.items()):
        for place in (i, i + 2, i + 5)[: 3 - i % 2]:
            shape = shapes[place % len(shapes)]
            found[f"{name}, {shape}"] = job_of(tree, **SHAPES[shape])  # type: ignore[arg-type]
    return found
