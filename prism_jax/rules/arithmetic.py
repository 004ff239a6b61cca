"""Rules between the numbers of a plan: one condition, evaluated for a plan or for columns of plans, and one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Problem
from ..plan.plan import ParallelPlan
from ..workload.base import Split

MAX_CHUNK_RUNS = 2**18  # forward passes of model chunks per replica; 2,048 micro-batches of 128 chunks, about a minute


@dataclass(frozen=True)
class PlanNumbers:
    """What the rules look at: integers of one plan, or columns [plan] of several; `n_parts` are of the model.

    Attributes:
        tied: ranks of dp that synchronise inside every op.
        is_hsdp: whether parameters are sharded in groups.
        n_parts: axis -> parts of the model that it is divided into.
    """

    tp: Any
    cp: Any
    dp: Any
    ep: Any
    micro_batch: Any
    global_batch: int
    seq_len: int
    sequence_parallel: Any
    n_micro_batch: Any
    n_chunk: int
    dp_shard: Any
    is_hsdp: Any
    tied: Any
    n_parts: Mapping[str, Split]

    @property
    def batch_of_all(self) -> Any:
        """Samples that all replicas take at a time."""
        return self.dp * self.micro_batch


def numbers_of(plan: ParallelPlan, n_parts: Mapping[str, Split]) -> PlanNumbers:
    """The numbers of one plan."""
    return PlanNumbers(
        tp=plan.tp,
        cp=plan.cp,
        dp=plan.dp,
        ep=plan.ep,
        micro_batch=plan.micro_batch,
        global_batch=plan.global_batch,
        seq_len=plan.seq_len,
        sequence_parallel=plan.sequence_parallel,
        n_micro_batch=plan.n_micro_batch,
        n_chunk=plan.n_chunk,
        dp_shard=plan.dp_shard,
        is_hsdp=plan.sharding == "hsdp",
        tied=plan.n_member // (plan.tp * plan.cp),
        n_parts=n_parts,
    )


@dataclass(frozen=True)
class Rule:
    """A condition that a plan has to meet.

    Attributes:
        reason: what is wrong with a plan that breaks it, as a search counts it.
        is_broken: of integers or of columns.
        problem: of one plan that breaks it, by the name of its model.
    """

    reason: str
    is_broken: Callable[[PlanNumbers], Any]
    problem: Callable[[PlanNumbers, str], Problem]


def _uneven_batch(p: PlanNumbers, model: str) -> Problem:
    step = p.batch_of_all
    near = max(step, round(p.global_batch / step) * step)
    return Problem(
        "global_batch",
        f"{p.global_batch} is not a multiple of dp*micro_batch = {p.dp}*{p.micro_batch} = {step}. Try global_batch={near}.",
    )


def _too_many_runs(p: PlanNumbers, model: str) -> Problem:
    most = max(MAX_CHUNK_RUNS // p.n_chunk, 1) * p.batch_of_all
    return Problem(
        "global_batch",
        f"{p.global_batch} makes {p.n_micro_batch} micro-batches of {p.n_chunk} model chunks, more than the "
        f"{MAX_CHUNK_RUNS} that are simulated. Try global_batch={most}: time grows in proportion from there.",
    )


def _uneven_sequence(p: PlanNumbers, model: str) -> Problem:
    above = -(-p.seq_len // p.cp) * p.cp
    return Problem("seq_len", f"{p.seq_len} is not a multiple of cp = {p.cp}. Try seq_len={above}.")


def _uneven_sequence_parallel(p: PlanNumbers, model: str) -> Problem:
    return Problem("", f"sequence_parallel needs seq_len/cp = {p.seq_len // p.cp} to be a multiple of tp = {p.tp}")


def _uneven_parts(axis: str) -> Callable[[PlanNumbers, str], Problem]:
    def problem(p: PlanNumbers, model: str) -> Problem:
        degree, (n, what, _) = getattr(p, axis), p.n_parts[axis]
        if n == 1:
            return Problem(axis, f"{degree}, but {model} has no {what}. Use {axis}=1.")
        divisor = next(d for d in range(min(n, degree), 0, -1) if n % d == 0)
        return Problem(axis, f"{degree} does not divide the model's {n} {what}. Try {axis}={divisor}.")

    return problem


def _unfilled_experts(p: PlanNumbers, model: str) -> Problem:
    return Problem("ep", f"{p.ep} does not divide dp*cp = {p.dp}*{p.cp} = {p.dp * p.cp}")


def _untied(p: PlanNumbers, model: str) -> Problem:
    return Problem("ep", f"{p.ep}, but all ranks of {model} step together. Use ep={p.dp * p.cp}.")


def _uneven_group(p: PlanNumbers, model: str) -> Problem:
    return Problem("dp_shard", f"{p.dp_shard}, but hsdp needs a group size that divides dp = {p.dp}")


def _uneven_ties(p: PlanNumbers, model: str) -> Problem:
    return Problem(
        "ep",
        f"{p.ep} and the sharding group tie {p.tied} ranks of dp together, which does not divide dp = {p.dp}",
    )


def _no_group(p: PlanNumbers) -> Any:
    """Of size 0 there is none."""
    return (p.dp_shard < 1) | (p.dp % (p.dp_shard + (p.dp_shard < 1)) != 0)


RULES = (
    Rule(
        "the batch is not a multiple of dp * micro_batch",
        lambda p: p.global_batch % p.batch_of_all != 0,
        _uneven_batch,
    ),
    Rule(
        "more chunk runs than are simulated",
        lambda p: (p.global_batch % p.batch_of_all == 0) & (p.n_micro_batch * p.n_chunk > MAX_CHUNK_RUNS),
        _too_many_runs,
    ),
    Rule("the sequence is not a multiple of cp", lambda p: p.seq_len % p.cp != 0, _uneven_sequence),
    Rule(
        "the sequence is not a multiple of cp * tp, as sequence parallelism needs",
        lambda p: (p.sequence_parallel != 0) & ((p.seq_len // p.cp) % p.tp != 0),
        _uneven_sequence_parallel,
    ),
    Rule("tp does not divide the attention heads", lambda p: p.n_parts["tp"].n % p.tp != 0, _uneven_parts("tp")),
    Rule("ep does not divide the experts", lambda p: p.n_parts["ep"].n % p.ep != 0, _uneven_parts("ep")),
    Rule("the model ties all ranks of dp * cp", lambda p: p.n_parts["ep"].is_fixed & (p.ep != p.dp * p.cp), _untied),
    Rule(
        "the model has no sequence that cp divides",
        lambda p: (p.n_parts["cp"].n == 1) & (p.cp > 1),
        _uneven_parts("cp"),
    ),
    Rule(
        "ep does not divide dp * cp",
        lambda p: (p.n_parts["ep"].n > 1) & ((p.dp * p.cp) % p.ep != 0),
        _unfilled_experts,
    ),
    Rule("dp_shard does not divide dp", lambda p: p.is_hsdp & _no_group(p), _uneven_group),
    Rule("experts or sharding tie ranks that do not divide dp", lambda p: p.dp % p.tied != 0, _uneven_ties),
)
