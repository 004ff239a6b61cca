"""Captured programs for tests: small ones, and the lines of their files."""

from typing import Any

from prism_jax.workload.captured.program import CapturedComm, CapturedOp, RankClass, RankProgram, Repeat


def product(phase: str = "F", m: int = 4096, n: int = 4096, k: int = 4096, **other: Any) -> CapturedOp:
    """A matrix product in bf16."""
    sizes = {"flops": 2.0 * m * n * k, "n_bytes": 2.0 * (m * k + k * n + m * n), "shape": (1, m, n, k)}
    return CapturedOp("mm", "gemm", phase, "bf16", **sizes | other)


def pointwise(phase: str = "F", n_bytes: float = 6e7, **other: Any) -> CapturedOp:
    """An operation that is bound by memory."""
    return CapturedOp("add", "memory", phase, "bf16", n_bytes=n_bytes, fusible=True, **other)


def reduction(phase: str = "F", n_bytes: float = 3e7, axis: str = "tp", ranks: int = 2, **other: Any) -> CapturedComm:
    """A sum over tensor-parallel ranks."""
    return CapturedComm("all_reduce", axis, ranks, 1 if axis == "tp" else 2, n_bytes, "bf16", phase, **other)


def layer(**comm: Any) -> tuple[CapturedOp | CapturedComm, ...]:
    """Rows of both passes of a layer."""
    return (product(), pointwise(), reduction(**comm), product("B"), product("W"), pointwise("B"))


def program(rows: tuple[CapturedOp | CapturedComm, ...] | None = None, **changes: Any) -> RankProgram:
    """Eight ranks, tp 2 x dp 4, 4 micro-batches of one sample of 128 tokens."""
    own: dict[str, Any] = {"repeats": (Repeat(0, 3, 4), Repeat(3, 6, 4)) if rows is None else (), "n_parameters": 1e8}
    one = RankClass("all", 8, 0, layer() if rows is None else rows, **own)
    given: dict[str, Any] = {
        "name": "toy",
        "world": 8,
        "axes": {"tp": 2, "dp": 4},
        "classes": (one,),
        "micro_batches": 4,
        "samples_per_step": 16,
        "tokens_per_sample": 128,
    }
    return RankProgram(**given | changes)


def class_of(*rows: CapturedOp | CapturedComm, repeats: tuple[Repeat, ...] = ()) -> RankClass:
    """One rank's rows."""
    return RankClass("all", 1, 0, rows, repeats)


def names_of(one: RankClass) -> list[str]:
    """Names of its operations and kinds of its collectives."""
    return [row.name if isinstance(row, CapturedOp) else row.collective for row in one.rows]
