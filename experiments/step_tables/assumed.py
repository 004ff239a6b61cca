"""What a row of a table of published steps leaves open, and what it is taken for: one rule per blank, told as an assumption."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, gcd, log

from experiments.step_tables.cluster import cluster_of_record
from experiments.step_tables.model import GATED, divisors, model_of_record, preset_named, trained_model
from experiments.step_tables.plan import framework_of_record, noted_global_batch, plan_of_record, states_degrees
from experiments.step_tables.records import Assumption, StepRecord, UnsupportedRowError, assuming
from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.surrogate import seconds_under
from prism_jax.core.errors import PrismError
from prism_jax.core.kernels import RECOMPUTE
from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.memory import memory
from prism_jax.framework.frameworks import framework_of
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.hardware import Cluster
from prism_jax.variability.tree import Variability
from prism_jax.workload.base.workload import Workload
from prism_jax.workload.transformer.spec import TransformerSpec

FIELDS = ("seq_len", "n_gpus")


@dataclass(frozen=True)
class Peers:
    """Most frequent values, smallest of equals.

    Attributes:
        by_model: (field, source, model) -> value.
        by_source: (field, source) -> value.
        devices: source -> the device that its rows name.
    """

    by_model: dict[tuple[str, str, str], int]
    by_source: dict[tuple[str, str], int]
    devices: dict[str, str] = field(default_factory=dict)

    def value(self, field: str, record: StepRecord) -> int | None:
        """That of rows of the same source and model, else of the same source; None if no row states it."""
        own = self.by_model.get((field, record.source, _bare(record.model_name)))
        return own or self.by_source.get((field, record.source))


def peers_of(records: Iterable[StepRecord]) -> Peers:
    """From all rows of a table."""
    by_model: defaultdict[tuple[str, str, str], Counter[int]] = defaultdict(Counter)
    by_source: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    devices: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        for name in FIELDS:
            value = getattr(record, name)
            if value:
                by_model[name, record.source, _bare(record.model_name)][value] += 1
                by_source[name, record.source][value] += 1
        if record.gpu:
            devices[record.source][record.gpu] += 1
    return Peers(
        {k: _most_frequent(v) for k, v in by_model.items()},
        {k: _most_frequent(v) for k, v in by_source.items()},
        {source: min(counts, key=lambda one: (-counts[one], one)) for source, counts in devices.items()},
    )


def _most_frequent(counts: Counter[int]) -> int:
    return min(counts, key=lambda value: (-counts[value], value))


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


# Blank virtual stages from rows of the same recipe: publishers print them in one table and drop them in the next.

_VERSION = re.compile(r"[\s_-]{0,9}v?\d{1,9}(\.\d{1,9}){0,9}$")


def fill_virtual_stages(records: Sequence[StepRecord]) -> list[StepRecord]:
    """The records, those with a pipeline and blank `vpp` with the value that all their siblings state.

    Notes:
        Siblings have the source (whatever its version), model, device, layers, micro-batch and degrees other than dp in
        common: a recipe whose batch and number of devices scale. Where they state several values, or none, it stays blank.
    """
    stated: defaultdict[tuple[object, ...], set[int]] = defaultdict(set)
    for record in records:
        if record.vpp is not None:
            stated[_recipe(record)].add(record.vpp)
    return [_filled(record, stated[_recipe(record)]) for record in records]


def _filled(record: StepRecord, stated: set[int]) -> StepRecord:
    if record.vpp is not None or (record.pp or 1) == 1 or len(stated) != 1:
        return record
    return replace(record, vpp=next(iter(stated)))


def _recipe(record: StepRecord) -> tuple[object, ...]:
    family = _VERSION.sub("", record.source)
    sizes = (record.n_layers, record.micro_batch, record.tp, record.pp, record.cp or 1, record.ep or 1)
    return (family, record.model_name, record.gpu, *sizes)


# An architecture that nobody published, from the number of parameters: the shape that models of that size usually
# have.

# 10^9 parameters, hidden size. Source: arXiv 2005.14165 table 2.1 (below 1.5), arXiv 2104.04473 table 1.
SHAPES = (
    (0.125, 768), (0.35, 1024), (0.76, 1536), (1.7, 2304), (3.6, 3072), (7.5, 4096), (18.4, 6144), (39.1, 8192),
    (76.1, 10240), (145.6, 12288), (310.1, 16384), (529.6, 20480), (1008.0, 25600),
)  # fmt: skip
HEAD_DIM = 128
DENSE = 0.6
_EXPERTS = re.compile(r"-a\d{1,9}(\.\d{1,9})?b\b|moe|\dx\d{1,9}(\.\d{1,9})?b|\b\d{1,9}e\b", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)([mbt])\b", re.IGNORECASE)
_SCALE = {"m": 1e-3, "b": 1.0, "t": 1e3}


def with_architecture(record: StepRecord) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with layers, hidden size and heads, if it has none and its number of parameters is known.

    Notes:
        The hidden size is that of the nearest size in `SHAPES`; layers follow from 12 hidden^2 parameters each (attention
        4, MLP 8, gated or plain), as a multiple of the pipeline stages. Models with experts are left as they are: by their
        name, or because what a token takes (FLOP/s over tokens/s) is less than `DENSE` of a dense model's 6 FLOPs per parameter.
    """
    size = record.params_b or _size_of(record.model_name)
    is_known = record.n_layers is not None and record.hidden is not None
    if is_known or not size or preset_named(record.model_name) is not None or _has_experts(record, size):
        return record, ()
    hidden = min(SHAPES, key=lambda shape: abs(log(shape[0] / size)))[1]
    stages = record.pp or 1
    n_layers = max(1, round(1e9 * size / (12 * hidden**2 * stages))) * stages
    ffn = 8 * hidden // 3 if GATED.search(record.model_name) else 4 * hidden
    shape = {"n_layers": n_layers, "hidden": hidden, "ffn": ffn, "n_heads": max(1, hidden // HEAD_DIM)}
    return assuming(record, f"usual shape of {size:g} billion parameters", shape)


def _has_experts(record: StepRecord, size: float) -> bool:
    flops, tokens = 1e12 * (record.tflops_per_gpu or 0.0), record.tokens_per_s_per_gpu or 0.0
    is_sparse = 0.0 < flops < DENSE * 6e9 * size * tokens
    return bool(record.n_experts) or bool(_EXPERTS.search(record.model_name)) or is_sparse


def _size_of(name: str) -> float | None:
    found = _SIZE.search(name.replace("-", " ").replace("_", " "))
    return float(found[1]) * _SCALE[found[2].lower()] if found else None


# A sequence length that a row does not state: from its own rates, from rows beside it, or the usual one.

USUAL = 2048  # of published pre-training before 2023; default of MaxText (`max_target_length`)
LONGEST = 8192  # of pre-training; a model's own limit may be that of a later extension
EXACT_LENGTH = 0.02  # relative; rates are rounded
POWERS = tuple(2**k for k in range(9, 18))  # lengths that FLOPs are held against
COUNTED = 0.05  # relative, of FLOPs: whether heads, norms or half of the scores count differs between sources


def with_seq_len(record: StepRecord, peers: Peers) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with a sequence length, if it has none."""
    if record.seq_len is not None:
        return record, ()
    own = _length_from_rates(record)
    if own is not None:
        return assuming(record, "tokens per second, step time and batch make it", {"seq_len": own})
    counted = _from_flops(record)
    if counted is not None:
        return assuming(record, "FLOP/s, step time and batch make it", {"seq_len": counted})
    beside = peers.value("seq_len", record)
    if beside is not None:
        return assuming(record, "as other rows of the source", {"seq_len": beside})
    preset = preset_named(record.model_name)
    if preset is not None:
        return assuming(record, "what the model was trained at", {"seq_len": min(preset.max_seq_len, LONGEST)})
    return assuming(record, "the usual one", {"seq_len": USUAL})


def _length_from_rates(record: StepRecord) -> int | None:
    if not (record.tokens_per_s_per_gpu and record.n_gpus and record.measured_s and record.global_batch):
        return None
    found = record.tokens_per_s_per_gpu * record.n_gpus * record.measured_s / record.global_batch
    nearest = 128 * round(found / 128)
    return nearest if nearest and abs(found / nearest - 1.0) < EXACT_LENGTH else None


def _from_flops(record: StepRecord) -> int | None:
    """The power of two whose FLOPs per sequence, in some convention, are those that the row's FLOP/s, time and batch make."""
    if not (record.tflops_per_gpu and record.n_gpus and record.measured_s and record.global_batch):
        return None
    try:
        model = model_of_record(record)
    except UnsupportedRowError:
        return None
    done = record.tflops_per_gpu * 1e12 * record.n_gpus * record.measured_s / record.global_batch
    off = {
        (length, causal, recompute): abs(
            log(done / (length * model.train_flops_per_token(length, causal=causal, recompute=recompute)))
        )
        for length in POWERS
        for causal in (True, False)
        for recompute in ("none", "full")
    }
    nearest = min(off, key=lambda one: off[one])
    return nearest[0] if off[nearest] < COUNTED else None


# A batch that a row does not state: from its rates where they make one, else a usual one, on which a rate hardly
# depends.

QUICKEST = "not published: the quickest of the usual ones that fit into memory"
TOKENS = 16384  # of a micro-batch that fills a device; fewer where they do not fit
MICRO_BATCHES_PER_STAGE = 4  # of a pipeline: its bubble is then a fifth
EXACT = 0.05  # relative; rates are rounded
CLOSE = 1.6  # most by which the number of micro-batches may change
_PER_DEVICE = re.compile(r"\b(\d{1,9}) per GPU\b", re.IGNORECASE)


def with_batch(
    record: StepRecord, model: TransformerSpec, cluster: Cluster
) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with a batch, if it has none; its sequence length and degrees are known.

    Raises:
        UnsupportedRowError: the plan cannot be known for another reason.
    """
    dp = _dp(record)
    is_stated = record.global_batch or record.micro_batch or noted_global_batch(record, dp, record.seq_len or 1)
    if is_stated:
        return record, ()
    exact = _batch_from_rates(record, model, dp)
    if exact is not None:
        return assuming(record, "rate and step time make it", {"global_batch": exact})
    stated = _PER_DEVICE.search(record.notes)
    if stated:
        own = int(stated[1])
        return assuming(record, "batch of the source's example", {"micro_batch": own, "global_batch": own * dp})
    return _usual_batch(record, model, cluster, dp)


def with_divided_batch(record: StepRecord) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with a micro-batch that divides its batch, where the last micro-batch of a step was smaller than the others.

    Notes:
        Sequences of the step stay as they are. The number of micro-batches is that of the source or as near to it as divisors
        allow; where none is within a factor of `CLOSE`, the record stays as it is.
    """
    dp, micro = _dp(record), record.micro_batch
    if not record.global_batch or not micro or record.global_batch % dp or (record.global_batch // dp) % micro == 0:
        return record, ()
    share = record.global_batch // dp
    n_stated = ceil(share / micro)
    n = min(divisors(share), key=lambda n: abs(log(n / n_stated)))
    if max(n / n_stated, n_stated / n) > CLOSE:
        return record, ()
    why = f"equal ones: {micro} leaves a smaller last one of {share}"
    return assuming(record, why, {"micro_batch": share // n})


def _dp(record: StepRecord) -> int:
    others = (record.tp or 1) * (record.pp or 1) * (record.cp or 1)
    return record.dp or max(1, (record.n_gpus or 1) // others)


def _batch_from_rates(record: StepRecord, model: TransformerSpec, dp: int) -> int | None:
    """Sequences of a step; a rate in FLOP/s is taken as the model's own and gives the nearest multiple of dp."""
    seconds, seq_len, n = record.measured_s, record.seq_len or 1, record.n_gpus or 1
    if seconds and record.tokens_per_s_per_gpu:
        found = record.tokens_per_s_per_gpu * n * seconds / seq_len
        return round(found) if round(found) and abs(found / round(found) - 1.0) < EXACT else None
    if seconds and record.tflops_per_gpu:
        per_sequence = seq_len * model.train_flops_per_token(seq_len, causal=False, recompute="none")
        found = record.tflops_per_gpu * 1e12 * n * seconds / per_sequence
        return max(1, round(found / dp)) * dp
    return None


def _usual_batch(
    record: StepRecord, model: TransformerSpec, cluster: Cluster, dp: int
) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The largest micro-batch of at most `TOKENS` tokens that fits into memory.

    Sharded parameters are gathered per micro-batch: where recomputation is not stated, the quickest of the micro-batches that
    fit with it or without it.
    """
    n_micro_batch = MICRO_BATCHES_PER_STAGE * record.pp if record.pp and record.pp > 1 else 1
    options = framework_of(framework_of_record(record)).memory
    micro = 2 ** max(0, (TOKENS // (record.seq_len or 1)).bit_length() - 1)
    may_recompute = record.sharding in ("fsdp", "hsdp", "zero3") and record.recompute not in RECOMPUTE
    found: _Found = (record, ())
    fitting: list[tuple[float, _Found]] = []
    while micro >= 1 and (may_recompute or not fitting):
        batch: dict[str, int | str] = {"micro_batch": micro, "global_batch": micro * dp * n_micro_batch}
        for more in ({"recompute": "none"}, {"recompute": "full"}) if may_recompute else ({},):
            found = assuming(record, QUICKEST if more else "a usual one: the rate hardly depends on it", batch | more)
            plan = plan_of_record(found[0])
            if memory(model, cluster, plan, options).fits:
                fitting.append((_seconds_of_token(record, model, cluster, plan) if may_recompute else 0.0, found))
        micro //= 2
    return min(fitting, key=lambda one: one[0])[1] if fitting else found


# The micro-batch of a row that does not state it: as many sequences at once as fit, where nothing else asks for few.

MOST_TOKENS = 65_536  # of a micro-batch: beyond, nothing is won


def with_usual_micro_batch(
    record: StepRecord, model: Workload, cluster: Cluster, plan: ParallelPlan, framework: str
) -> ParallelPlan:
    """The plan with the largest micro-batch that fits into memory, in powers of two, where the row states none.

    Pipelines keep one sequence, which keeps them busy; so do rows whose batch per replica is a single sequence.
    """
    local = plan.global_batch // plan.dp
    if record.micro_batch is not None or plan.pp > 1 or plan.micro_batch > 1 or local == 1:
        return plan
    sizes = [
        n
        for n in (2**k for k in range(local.bit_length()))
        if local % n == 0 and n * plan.seq_len <= MOST_TOKENS * plan.cp
    ]
    plans = [replace(plan, micro_batch=n) for n in sizes]
    return next((one for one in reversed(plans) if _fits(model, cluster, one, framework)), plan)


def _fits(model: Workload, cluster: Cluster, plan: ParallelPlan, framework: str) -> bool:
    try:
        needed = memory(model, cluster, plan, framework_of(framework).memory)
    except PrismError:
        return False
    return needed.total_bytes * (1.0 + framework_of(framework).memory_margin) <= cluster.device.hbm_bytes


# Parallel degrees that a row does not state: the quickest of the usual ones under which the model fits into memory, as who
# publishes a time has chosen them.

STAGES = (2, 4, 8, 16)
LONG_SEQUENCE = 32_768  # from which on sequences are split rather than matrices
_Found = tuple[StepRecord, tuple[Assumption, ...]]


def with_degrees(record: StepRecord, model: TransformerSpec, cluster: Cluster) -> _Found:
    """The record with its degrees, if it states none; its sequence length is known.

    Notes:
        Tensor parallelism up to a node, and pipeline stages; activations are recomputed only where nothing fits without
        and the row does not say. If nothing fits at all, the widest. On TPU, chips that exceed the sequences of a step share
        them: by context parallelism for long sequences, by tensor parallelism for others.
    """
    if _is_short_of_sequences(record):
        return _shared_sequences(record)
    if states_degrees(record):
        return record, ()
    widest: _Found = (record, ())
    fitting: list[tuple[float, _Found]] = []
    for tp, pp, recompute in _candidates(record, model, cluster):
        if fitting and recompute:
            break
        given: dict[str, int | str] = {"tp": tp, "pp": pp} | ({"recompute": recompute} if recompute else {})
        found = assuming(record, QUICKEST, given)
        try:
            plan = plan_of_record(with_batch(found[0], model, cluster)[0])
            fits = memory(model, cluster, plan, framework_of(framework_of_record(record)).memory).fits
            if fits:
                fitting.append((_seconds_of_token(record, model, cluster, plan), found))
        except (UnsupportedRowError, PrismError):
            continue
        widest = found
    return min(fitting, key=lambda one: one[0])[1] if fitting else widest


def _seconds_of_token(record: StepRecord, model: Workload, cluster: Cluster, plan: ParallelPlan) -> float:
    """Of a step without variability, uncalibrated, over its tokens."""
    job = Job(model, cluster, plan, Variability(), record.id, framework_of_record(record), uncalibrated())
    job.check()
    seconds = float(seconds_under([BlockCostModel(model, cluster, job.plan, job.efficiency)])[0])
    return seconds / (plan.global_batch * plan.seq_len)


def _candidates(record: StepRecord, model: TransformerSpec, cluster: Cluster) -> Iterator[tuple[int, int, str]]:
    """(tp, pp, recomputation) from the narrowest on; tp alone where parameters are sharded."""
    node = min(record.gpus_per_node or cluster.node_size, 8)
    degrees = [(tp, 1) for tp in (1, 2, 4, 8) if tp <= node and model.n_heads % tp == 0]
    widest = degrees[-1][0]
    if re.search(r"tensor parallel", record.notes, re.IGNORECASE):
        degrees = [(widest, 1)]
    elif record.tp is not None:
        degrees = [(record.tp, 1)]
    if not record.sharding or record.sharding in ("none", "zero1"):
        degrees += [(degrees[-1][0], pp) for pp in STAGES if model.n_layers % pp == 0]
    if record.pp is not None:
        degrees = [(tp, record.pp) for tp in dict.fromkeys(tp for tp, _ in degrees)]
    known = record.recompute in ("none", "selective", "full")
    for recompute in ("",) if known else ("", "full"):
        for tp, pp in degrees:
            if (record.n_gpus or 1) % (tp * pp) == 0:
                yield tp, pp, recompute


def _is_short_of_sequences(record: StepRecord) -> bool:
    """On TPU, where every chip has sequences of its own unless something else is said."""
    is_blank = (record.tp, record.pp, record.cp) in ((None, None, None), (None, None, 1))
    is_tpu = record.gpu.lower().startswith("tpu")
    return bool(is_tpu and is_blank and record.global_batch and (record.n_gpus or 1) > 1) and bool(
        record.global_batch and record.global_batch % (record.n_gpus or 1)
    )


def _shared_sequences(record: StepRecord) -> _Found:
    n = record.n_gpus or 1
    shared = n // gcd(n, record.global_batch or 1)
    axis = "cp" if (record.seq_len or 0) >= LONG_SEQUENCE else "tp"
    found = assuming(record, f"fewer sequences than chips: {shared} chips share one", {axis: shared})
    return replace(found[0], pp=1), found[1]


# Whether what was assumed agrees with the rates that a row states.

MOST = 1.4  # factor between the FLOPs of a token by the row's two rates and by the model


def rates_disagree(record: StepRecord, model: TransformerSpec) -> str:
    """What is wrong, in words: FLOP/s over tokens/s is no token of this model in any convention; empty if it is one, or unknown.

    Notes:
        Conventions: attention counted whole or causal, with or without a second forward pass.
    """
    if not (record.tflops_per_gpu and record.tokens_per_s_per_gpu and record.seq_len):
        return ""
    stated = record.tflops_per_gpu * 1e12 / record.tokens_per_s_per_gpu
    ratios = [
        log(stated / model.train_flops_per_token(record.seq_len, causal=causal, recompute=recompute))
        for causal in (True, False)
        for recompute in ("none", "full")
    ]
    nearest = min(ratios, key=abs)
    if abs(nearest) <= log(MOST):
        return ""
    return f"FLOP/s over tokens/s is {exp(nearest):.2f} times what a token of the assumed model takes"


# A record whose blanks are filled as far as rules go; what is stated stays as it is.


def completed(record: StepRecord, peers: Peers) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with every blank that has a rule, and the assumptions that this makes.

    Raises:
        UnsupportedRowError: the model or the machine cannot be known, so that no plan can be chosen.
    """
    record, devices = _with_devices(record, peers)
    record, shape = with_architecture(record)
    record, length = with_seq_len(record, peers)
    cluster, model = cluster_of_record(record), trained_model(record)
    record, degrees = with_degrees(record, model, cluster)
    record, batch = with_batch(record, model, cluster)
    record, divided = with_divided_batch(record)
    alike = cluster.device.like
    like = (Assumption("device", alike, f"likeness of {record.gpu!r}"),) if alike else ()
    return record, (*like, *devices, *shape, *length, *degrees, *batch, *divided)


_NODES = re.compile(r"\b(\d{1,6}) ?nodes\b", re.IGNORECASE)


def _with_devices(record: StepRecord, peers: Peers) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The device of the source's other rows, where one names none; their number, where it states a rate per device and none."""
    alike = peers.devices.get(record.source, "")
    if not record.gpu and alike:
        named = assuming(record, "as other rows of the source", {"gpu": alike})
        done = _with_devices(named[0], peers)
        return done[0], (*named[1], *done[1])
    nodes = _NODES.search(record.notes)
    if record.n_gpus is None and record.dp is None and nodes:
        return assuming(record, "nodes that the notes name", {"n_gpus": int(nodes[1]) * (record.gpus_per_node or 8)})
    beside = peers.value("n_gpus", record)
    has_rate = record.tokens_per_s_per_gpu or record.tflops_per_gpu
    if record.n_gpus is not None or beside is None or not has_rate or record.measured_s:
        return record, ()
    return assuming(record, "as other rows of the source; only a rate per device is given", {"n_gpus": beside})
