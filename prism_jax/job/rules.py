"""Rules that a plan must keep with its model and its cluster: contradictions with value, constraint and remedy, and notes.

A rule between numbers is one condition, evaluated for a plan or for columns of plans, and one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from ..core.errors import PlanError, PrismError, Problem
from ..core.kernels import RECOMPUTE
from ..core.lazy import np
from ..core.units import format_count
from ..framework.software import software_problems
from ..plan.fields import (
    DTYPES,
    FP8_FAMILY,
    FP8_RECIPES,
    QUANTISED,
    SAVED_BYTES,
    STATE_DTYPE_VALUES,
    recompute_problems,
)
from ..plan.packing import MIXTURE, PACKINGS, law_of
from ..plan.plan import SHARDING, ParallelPlan
from ..schedule.base import PipelineSchedule
from ..schedule.registry import SCHEDULES
from ..system.hardware import Cluster
from ..workload.base.workload import Split, Workload, completed_plan, n_body
from ..workload.captured.fusion import capture_notes
from ..workload.captured.model import CapturedModel
from ..workload.transformer.spec import TransformerSpec

MAX_CHUNK_RUNS = 2**18  # forward passes of model chunks per replica; 2,048 micro-batches of 128 chunks, about a minute


@dataclass(frozen=True)
class PlanNumbers:
    """Numbers that the rules check: integers of one plan, or columns [plan] of several; `n_parts` are of the model.

    Attributes:
        expert_ranks: ranks among which the parts of all experts are shared out: ep * etp.
        tied: ranks of dp that synchronise inside every op.
        is_hsdp: whether parameters are sharded in groups.
        n_parts: axis -> parts of the model that it is divided into.
    """

    tp: Any
    cp: Any
    dp: Any
    ep: Any
    expert_ranks: Any
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
        expert_ranks=plan.ep * plan.expert_tp,
        micro_batch=plan.micro_batch,
        global_batch=plan.global_batch,
        seq_len=plan.seq_len,
        sequence_parallel=plan.sequence_parallel,
        n_micro_batch=plan.n_micro_batch,
        n_chunk=plan.n_chunk,
        dp_shard=plan.dp_shard,
        is_hsdp=plan.sharding == "hsdp",
        tied=plan.tied,
        n_parts=n_parts,
    )


@dataclass(frozen=True)
class Rule:
    """A condition that a plan has to meet.

    Attributes:
        reason: mistake of a plan that breaks the rule, as a search counts it.
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


def _uneven_parts(axis: str) -> Callable[[PlanNumbers, str], Problem]:
    def problem(p: PlanNumbers, model: str) -> Problem:
        degree, (n, what, _) = getattr(p, axis), p.n_parts[axis]
        if n == 1:
            return Problem(axis, f"{degree}, but {model} has no {what}. Use {axis}=1.")
        divisor = next(d for d in range(min(n, degree), 0, -1) if n % d == 0)
        return Problem(axis, f"{degree} does not divide the model's {n} {what}. Try {axis}={divisor}.")

    return problem


def _uneven_experts(p: PlanNumbers, model: str) -> Problem:
    n, etp = p.tp * p.cp * p.dp, p.expert_ranks // p.ep
    product = f"tp*cp*dp = {p.tp}*{p.cp}*{p.dp} = {n}"
    if etp == 1:
        return Problem("ep", f"{p.ep} does not divide {product}. Try ep={gcd(p.ep, n)}.")
    other = f" or ep={gcd(p.ep, n // etp)}" if n % etp == 0 else ""
    remedy = f"Try etp=1 (whole experts){other}."
    return Problem("ep", f"{p.ep} times etp = {etp} does not divide {product}. {remedy}")


def _no_group(p: PlanNumbers) -> Any:
    """Whether there is no group of `dp_shard` ranks: its size is 0, or does not divide dp."""
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
        lambda p, _: Problem(
            "", f"sequence_parallel needs seq_len/cp = {p.seq_len // p.cp} to be a multiple of tp = {p.tp}"
        ),
    ),
    Rule("tp does not divide the attention heads", lambda p: p.n_parts["tp"].n % p.tp != 0, _uneven_parts("tp")),
    Rule("ep does not divide the experts", lambda p: p.n_parts["ep"].n % p.ep != 0, _uneven_parts("ep")),
    Rule(
        "the model ties all ranks of dp * cp",
        lambda p: p.n_parts["ep"].is_fixed & (p.ep != p.dp * p.cp),
        lambda p, model: Problem("ep", f"{p.ep}, but all ranks of {model} step together. Use ep={p.dp * p.cp}."),
    ),
    Rule(
        "the model has no sequence that cp divides",
        lambda p: (p.n_parts["cp"].n == 1) & (p.cp > 1),
        _uneven_parts("cp"),
    ),
    Rule(
        "ep * etp does not divide tp * cp * dp",
        lambda p: (p.n_parts["ep"].n > 1) & ((p.tp * p.cp * p.dp) % p.expert_ranks != 0),
        _uneven_experts,
    ),
    Rule(
        "dp_shard does not divide dp",
        lambda p: p.is_hsdp & _no_group(p),
        lambda p, _: Problem("dp_shard", f"{p.dp_shard}, but hsdp needs a group size that divides dp = {p.dp}"),
    ),
    Rule(
        "experts or sharding tie ranks that do not divide dp",
        lambda p: p.dp % p.tied != 0,
        lambda p, _: Problem(
            "ep", f"{p.ep} and the sharding group tie {p.tied} ranks of dp together, which does not divide dp = {p.dp}"
        ),
    ),
)


ATTENTION = ("flash", "unfused")


def check_plan(plan: ParallelPlan, model: Workload, cluster: Cluster) -> None:
    """Raises the first contradiction between plan, model and cluster.

    Raises:
        PlanError: value, constraint, remedy.
    """
    for problem in problems(plan, model, cluster):
        raise PlanError.of(problem)


def problems(plan: ParallelPlan, model: Workload, cluster: Cluster) -> Iterator[Problem]:
    """Yields every contradiction of a plan with its model and its cluster."""
    plan = completed_plan(model, plan, cluster.node_size)
    yield from _names(plan)
    yield from _devices(plan, cluster)
    yield from _arithmetic(plan, model)
    yield from model.problems(plan)
    yield from recompute_problems(plan)
    yield from _state_dtypes(plan)
    yield from _backward(plan)
    yield from _host(plan)
    yield from _pipeline(plan, model)
    yield from _packing(plan, model)
    try:
        cluster.device.peak(plan.dtype)
    except PrismError as error:
        yield Problem("dtype", f"{plan.dtype}: {error}")


def _names(plan: ParallelPlan) -> Iterator[Problem]:
    if not _knows_schedule(plan):
        yield Problem("schedule", f"{plan.schedule!r} is unknown; known are {', '.join(SCHEDULES.names)}")
    for name, known in {"recompute": RECOMPUTE, "sharding": SHARDING, "attention": ATTENTION}.items():
        if getattr(plan, name) not in known:
            yield Problem(name, f"{getattr(plan, name)!r} is unknown; known are {', '.join(known)}")
    yield from software_problems(plan.software)
    if plan.zero_stage not in (0, 1, 2, 3):
        yield Problem("zero_stage", f"{plan.zero_stage}, but it must be 0, 1, 2 or 3")


def _devices(plan: ParallelPlan, cluster: Cluster) -> Iterator[Problem]:
    if plan.n_devices == cluster.n_devices:
        return
    rest = plan.tp * plan.cp * plan.pp
    product = f"tp*cp*dp*pp = {plan.tp}*{plan.cp}*{plan.dp}*{plan.pp} = {plan.n_devices}"
    remedy = (
        f"Try dp={cluster.n_devices // rest}; `dp: auto` in a job file finds it."
        if cluster.n_devices % rest == 0
        else f"Set cluster.n_devices to {plan.n_devices}."
    )
    yield Problem("", f"{product}, but the cluster has {cluster.n_devices} devices. {remedy}")


def _arithmetic(plan: ParallelPlan, model: Workload) -> Iterator[Problem]:
    numbers = numbers_of(plan, model.splits(plan))
    for rule in RULES:
        if rule.is_broken(numbers):
            yield rule.problem(numbers, model.name)
    if plan.etp is not None and plan.etp > 1 and numbers.n_parts["ep"].n == 1:
        yield Problem("etp", f"{plan.etp}, but {model.name} has no {numbers.n_parts['ep'].what}. Leave it out.")
    if plan.dp_shard and plan.sharding != "hsdp":
        yield Problem("dp_shard", f"{plan.dp_shard} only means something with sharding = hsdp, not {plan.sharding}")


def _state_dtypes(plan: ParallelPlan) -> Iterator[Problem]:
    for name, known in STATE_DTYPE_VALUES.items():
        value = getattr(plan.state_dtypes, name)
        if value is not None and value not in known:
            yield Problem(f"state_dtypes.{name}", f"{value!r} is unknown; known are {', '.join(known)}")
    for name, value in vars(plan.saved_dtypes).items():
        if value is not None and value not in SAVED_BYTES:
            yield Problem(f"saved_dtypes.{name}", f"{value!r} is unknown; known are {', '.join(SAVED_BYTES)}")
    if plan.state_dtypes.fp8_params and plan.dtype not in FP8_FAMILY:
        yield Problem("state_dtypes.fp8_params", f"true, but dtype = {plan.dtype}. It goes with dtype=fp8 or mxfp8.")
    if plan.bf16_layers is not None and plan.dtype not in QUANTISED:
        text = f"{plan.bf16_layers}, but dtype = {plan.dtype}. It goes with {', '.join(QUANTISED)}."
        yield Problem("bf16_layers", text)
    if plan.fp8_recipe not in (None, *FP8_RECIPES):
        yield Problem("fp8_recipe", f"{plan.fp8_recipe!r} is unknown; known are {', '.join(FP8_RECIPES)}")
    elif plan.fp8_recipe in ("rowwise", "blockwise", "mxfp8") and plan.dtype not in FP8_FAMILY:
        yield Problem("fp8_recipe", f"{plan.fp8_recipe}, but dtype = {plan.dtype}. It goes with dtype=fp8.")
    if plan.dtype not in DTYPES:
        yield Problem("dtype", f"{plan.dtype!r} is unknown; known are {', '.join(DTYPES)}")


def _host(plan: ParallelPlan) -> Iterator[Problem]:
    """Yields the contradictions of keeping states on the host."""
    if plan.offload_parameters and plan.sharding == "none" and plan.zero_stage != 3:
        yield Problem(
            "offload_parameters", "true, but parameters are not sharded. It goes with zero_stage=3, or sharding=fsdp."
        )
    if plan.optimizer_in_backward and plan.offload_optimizer:
        yield Problem("optimizer_in_backward", "true, but the optimizer is on the host. Use offload_optimizer=false.")


def _backward(plan: ParallelPlan) -> Iterator[Problem]:
    """Yields the contradictions of updates within the backward pass."""
    if not plan.optimizer_in_backward:
        return
    if plan.n_micro_batch > 1:
        text = (
            f"true, but a step has {plan.n_micro_batch} micro-batches: gradients that are applied at once are not accumulated. "
            f"Use global_batch={plan.dp * plan.micro_batch}, or optimizer_in_backward=false."
        )
        yield Problem("optimizer_in_backward", text)
    if plan.pp > 1:
        yield Problem("optimizer_in_backward", f"true, but pp = {plan.pp}. It goes with pp=1.")


def _knows_schedule(plan: ParallelPlan) -> bool:
    return isinstance(plan.schedule, PipelineSchedule) or plan.schedule in SCHEDULES


def _pipeline(plan: ParallelPlan, model: Workload) -> Iterator[Problem]:
    if plan.n_micro_batch and _knows_schedule(plan):
        n = min(plan.n_micro_batch, MAX_CHUNK_RUNS)  # a rule refuses more
        yield from plan.pipeline_schedule.problems(plan.pp, n, plan.virtual_stages)
    if plan.layer_split:
        if len(plan.layer_split) != plan.n_chunk or sum(plan.layer_split) != n_body(model):
            yield Problem(
                "",
                f"layer_split has {len(plan.layer_split)} chunks with {sum(plan.layer_split)} layers, but the plan has "
                f"pp*virtual_stages = {plan.n_chunk} chunks and the model {n_body(model)} layers",
            )
    elif plan.n_chunk > n_body(model) + 2:
        yield Problem(
            "", f"pp*virtual_stages = {plan.n_chunk} model chunks, but the model has only {n_body(model)} layers"
        )


def _packing(plan: ParallelPlan, model: Workload) -> Iterator[Problem]:
    lengths = plan.data.lengths
    if lengths and not isinstance(model, TransformerSpec):
        yield Problem("data.lengths", f"{model.name} reads no packed sequences of tokens. Leave them out.")
    elif plan.data.packing != MIXTURE and not lengths:
        yield Problem("data.packing", f"{plan.data.packing}, but data.lengths says of no documents how long they are.")
    elif plan.data.packing == MIXTURE and lengths.longest > plan.seq_len:
        text = f"a document of {lengths.longest} tokens is longer than plan.seq_len = {plan.seq_len}"
        yield Problem("data.lengths", f"{text}. Cut it, or raise seq_len.")


def workload_notes(model: Workload, plan: ParallelPlan) -> Iterator[str]:
    """Sentences about parts of a model that are left out, or differ from the published model.

    Notes:
        How long a sequence may be is known of published models, which have a source; of models written by hand it is known
        where positions are learned.
    """
    if isinstance(model, CapturedModel):
        yield from capture_notes(model.program)
    if not isinstance(model, TransformerSpec):
        return
    for part in model.left_out:
        yield f"model {model.name}: {part} of the published model is left out"
    if model.assumed:
        yield f"model {model.name}: assumed, as its config.json does not say it: {', '.join(model.assumed)}"
    if model.adapters is not None:
        of = f"{format_count(model.n_params_trained())} of {format_count(model.n_params())} parameters"
        yield f"adapters: {of} are trained; MFU counts no weight gradients of the others"
    is_stated = bool(model.source) or model.position == "learned"
    if is_stated and plan.seq_len > model.max_seq_len:
        yield (
            f"seq_len = {plan.seq_len} is longer than the {model.max_seq_len} tokens that model {model.name} is made for "
            "(max_seq_len, max_position_embeddings of its config)"
        )
    if plan.data.lengths:
        yield _packing_note(plan)
    if model.window is not None and not plan.is_flash and model.window.size < plan.seq_len:
        yield f"attention = unfused computes all scores: the window of {model.window.size} tokens saves nothing"


def _packing_note(plan: ParallelPlan) -> str:
    lengths = plan.data.lengths
    n = lengths.n_documents * plan.seq_len / lengths.n_tokens
    if plan.data.is_drawn:
        return _drawn_note(plan)
    if not plan.is_flash:
        return f"attention = unfused computes all scores: {n:.3g} documents per sequence (data.lengths) save nothing"
    share = lengths.mean_over_tokens(lambda length: length + 1.0) / (plan.seq_len + 1.0)
    return f"data.lengths: {n:.3g} documents per sequence; attention sees {share:.1%} of the pairs that one document would have"


def _drawn_note(plan: ParallelPlan) -> str:
    data, law = plan.data, law_of(plan)
    padding = 1.0 - law.real_tokens / law.seq_len
    text = f"data.packing = {data.packing}: {PACKINGS[data.packing]}"
    text += f"; {padding:.0%} of the tokens that are computed are padding" if padding > 0.0 else ""
    length, share = data.lengths.arrays(data.lengths.longest)
    cut = float(share @ np.maximum(length - plan.seq_len, 0)) / float(share @ length)
    if padding > 0.0 and cut > 0.0:
        text += f"; {cut:.1%} of the tokens lie behind seq_len = {plan.seq_len} and are cut off"
    return text


def independent_work_notes(plan: ParallelPlan) -> Iterator[str]:
    """Yields the note of a command that draws replicas one by one, where those of a step share documents out."""
    if plan.data.packing == "balanced":
        yield (
            "data.packing = balanced: every replica has its share of a step of its own, where predict shares out one step: p95 "
            "differs by up to 1%"
        )
