"""A job from the head of a log: its fields, its device and cluster, and the check by the printed numbers of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, DataError, Mark, PrismError
from ..core.readable import some
from ..job.job import Job
from ..job.load_job import FieldChange, apply_overrides, job_of, with_fields
from ..job.logged import logged_job
from ..plan.plan import ParallelPlan
from ..recorded.formats.text_logs import read_text_log
from ..system import catalog
from ..tables.document import Document
from ..trace.step_log import StepLog
from ..workload.transformer.spec import TransformerSpec
from .config_files import SUFFIXES, NoHeadError
from .device import device_in, possible_devices, stated_device
from .head import Head, runs_of
from .launch_files import heads_of_file, is_script, states_job
from .log_trainers import TRAINERS
from .megatron import BEFORE_AMPERE, megatron_job
from .read_heads import read_heads
from .stated import StatedJob, whole

EXACT, NEAR = 1e-7, 0.01  # relative: of a count of parameters that is right, and of one that is worth no remark
OFFLOAD_SD = 0.85  # of the logarithm: hosts and their links differ by a factor of four either way (90%)
MOST_DEVICES_SHOWN = 8
READERS = {one.name: one.read for one in TRAINERS}  # a block of arguments of Megatron-LM counts more


@dataclass(frozen=True)
class HeadJob:
    """A job that a head states.

    Attributes:
        stated: its fields, and what does not become one.
        document: as a job file, `overrides` included.
        job: as it is predicted.
    """

    stated: StatedJob
    document: Document
    job: Job


class NoDeviceError(DataError):
    """A log that does not say which GPU it is of."""


def stated_job(head: Head, device: str | None = None) -> StatedJob:
    """Fields that the head states, the device among them where it is known.

    Args:
        device: as a person names it; None: as the log does.

    Raises:
        DataError: a value is no number.
        SpecError: no such device.
    """
    name = device_in(head) if device is None else stated_device(device)
    generation = catalog.device(name).generation if name else ""
    job = stated_fields(head, generation)
    if name is not None:
        said = head.facts.get("gpu") if device is None else None
        job.put("cluster.device", name, said, why="" if said else "--device")
        _cluster(head, job, name)
        _emulated(job, name)
        _limited(head, job, name)
    for path in ("plan.offload_parameters", "plan.offload_optimizer"):
        if job.get(path):
            job.doubts.append((f"{path}: how fast the host is", OFFLOAD_SD))
            break
    return job


def stated_fields(head: Head, generation: str = "") -> StatedJob:
    """Fields that the head states, without what follows from the device but its kernels.

    Args:
        generation: of the device, where it is known.

    Raises:
        DataError: a value is no number.
    """
    is_megatron = "hidden_size" in head.arguments and "num_layers" in head.arguments
    read = megatron_job if is_megatron else READERS.get(head.trainer, megatron_job)
    head.generation = generation
    return read(head)


def job_of_head(head: Head, file: str, device: str | None = None, overrides: Sequence[str] = ()) -> HeadJob:
    """The job that a head states.

    Args:
        file: the log, for messages.
        device: as a person names it; None: as the log does.
        overrides: fields that replace or add some, as `--set` takes them.

    Raises:
        NoDeviceError: the log does not say which GPU it is of, and nobody else did.
        DataError: it cannot be a job; says why.
        ConfigError: fields contradict each other; names the line of the log.
    """
    stated = stated_job(head, device)
    given = {one.partition("=")[0].strip() for one in overrides}
    _ask_once(head, stated, given)
    if stated.get("model.vocab") is None and not given & {"model", "model.vocab", "model.preset"}:
        _infer_vocab(head, stated, file, overrides)
    _check_parameters(head, stated, file, overrides)
    document = apply_overrides(stated.document(_name(head), file), list(overrides))
    return HeadJob(stated, document, job_of(document))


def asked_job(heads: Sequence[Head], path: Path, device: str | None, overrides: Sequence[str]) -> tuple[Head, HeadJob]:
    """The first job that some heads state; all that is open is asked for at once.

    Raises:
        ConfigError: fields of the first contradict each other; names file and line.
        DataError: something is open, or none can be a job; says why the first cannot.
    """
    found: tuple[Head, HeadJob] | None = None
    reasons: list[PrismError] = []
    for head in heads:
        try:
            found = head, job_of_head(head, str(path), device, overrides)
            break
        except PrismError as error:
            reasons.append(error)
    _refuse_open(heads, path, device)
    if found is not None:
        return found
    if isinstance(reasons[0], ConfigError):  # names file and line
        raise reasons[0]
    raise DataError(f"{path}: {reasons[0]}")


def _refuse_open(heads: Sequence[Head], path: Path, device: str | None) -> None:
    """Asks for what readers looked up and the file leaves open.

    Raises:
        DataError: there is something.
    """
    asked = [one for head in heads for one in head.questions()]
    if not asked:
        return
    names = [one[1:].partition(" ")[0] for one in asked if one.startswith("$") and not one.startswith("$(")]
    options = " ".join(f"--env {name}=VALUE" for name in names if not name.isdecimal())
    behind = "its positional arguments behind the file" if any(map(str.isdecimal, names)) else ""
    gpus = "--gpus N" if any("for --world-size" in one or "for world_size" in one for one in asked) else ""
    remedy = " and ".join(filter(None, (behind, options, gpus))) or "--set for these fields"
    gpu = "" if device else " Name the GPU too: --device NAME."
    raise DataError(f"{path} leaves open {', '.join(asked)}. Give {remedy}.{gpu}")


def document_of_log(file: Path, overrides: Sequence[str] = ()) -> Document | None:
    """The job file of the first run of a log that states a job, of a launch script or a configuration; None where the file states
    none.

    Args:
        overrides: fields that replace or add some, as `--set` takes them; `cluster.device` is the GPU.

    Raises:
        DataError: it cannot be a job; says why.
    """
    given = {name.strip(): value.strip() for name, _, value in (one.partition("=") for one in overrides)}
    n = given.get("cluster.n_devices", "")
    try:
        is_written = is_script(file) or file.suffix in SUFFIXES
        if not states_job(file):
            return None
    except DataError:
        return None
    takes_number = n.isdecimal() and is_written
    try:
        heads = heads_of_file(file, n_devices=int(n) if takes_number else None)
    except NoHeadError:
        return None
    except DataError:
        if is_written:
            raise
        return None
    taken = ("cluster.device", "cluster.n_devices") if takes_number else ("cluster.device",)
    rest = [one for one in overrides if one.partition("=")[0].strip() not in taken]
    return asked_job(heads, file, given.get("cluster.device") or None, rest)[1].document


def logged_runs(file: Path) -> list[tuple[dict[str, Any], StepLog]]:
    """Runs of a text log whose heads state what ran: GPU, GPUs and job (`logged_job`) where they are said; steps."""
    found: list[tuple[dict[str, Any], StepLog]] = []
    with suppress(PrismError):
        for head in list(runs_of(read_heads(file))):
            with suppress(PrismError):  # a start without a step is no run
                steps = read_text_log(file, between=(head.first_line, head.last_line))
                job = stated_job(head)
                gpu = job.get("cluster.device") or job.get("cluster.device.preset")
                said = {
                    "gpu": gpu,
                    "n_gpus": job.get("cluster.n_devices"),
                    "job": logged_job(job.get) or None,
                }
                found.append(({name: value for name, value in said.items() if value is not None}, steps))
    return found


def _name(head: Head) -> str:
    """A neutral name: those of runs and folders are nobody's business. Runs of one log have their line."""
    return f"{head.trainer or 'Megatron-LM'} {f'run at line {head.first_line}' if head.source == 'log' else 'job'}"


SIZES = tuple(f"model.{name}" for name in ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab"))
OF_PLAN = ("cluster.n_devices", "plan.seq_len", "plan.micro_batch", "plan.global_batch")


def _ask_once(head: Head, stated: StatedJob, given: set[str]) -> None:
    """Refuses a head that leaves open what a job cannot be without; says all of it at once, as it is typed.

    Raises:
        NoDeviceError: it is the GPU alone.
        DataError: there are other fields.
    """
    has_model = "model" in given or "model.preset" in given
    known = given | set(stated.fields)
    reasons = [] if any(one.partition(".")[0] == "model" for one in given) else list(stated.refused)
    of_model = bool(reasons)
    sizes = [] if has_model else [one for one in SIZES if one not in known]
    if sizes == ["model.vocab"] and (0, 0) in head.params:
        sizes = []  # it follows from the number of parameters
    whole_cluster = {"cluster", "cluster.preset"} & given
    plan = [one for one in OF_PLAN if one not in known and not (whole_cluster and one == "cluster.n_devices")]
    asked = [one for one in stated.open if one not in given]
    reasons += [stated.open[one] for one in asked]
    by_gpus = head.source != "log" and "cluster.n_devices" in plan
    if by_gpus and "plan.micro_batch" in stated.fields:
        plan = [one for one in plan if one != "plan.global_batch"]  # it follows
    options = [f"--set {one}=N" for one in (*sizes, *plan, *asked)]
    if by_gpus:
        options = ["--gpus N", *(one for one in options if "n_devices" not in one)]
    if of_model or len(sizes) > 1:
        options.insert(0, "--set model=NAME (`prism-jax show models`), or its sizes:" if sizes else "--set model=NAME")
    if (sizes or plan) and (not reasons or asked):
        reasons.append(f"the {head.source} does not say {', '.join((*sizes, *plan))}")
    if (sizes or plan) and (lacking := head.lacking()):
        reasons.append(lacking)
    if _lacks_device(stated, given):
        reason, name = _which_device(head, stated)
        if not options:
            raise NoDeviceError(f"{reason}. Name it once: --device {name}")
        reasons.append(reason)
        options.insert(0, "--device NAME")
    if reasons:
        raise DataError(f"{'; '.join(dict.fromkeys(reasons))}. Give {' '.join(options)}")


def _lacks_device(stated: StatedJob, given: set[str]) -> bool:
    has_device = any(path.startswith("cluster.device") for path in stated.fields)
    return not has_device and not {"cluster", "cluster.preset", "cluster.device", "cluster.device.preset"} & given


def _which_device(head: Head, stated: StatedJob) -> tuple[str, str]:
    """Names the GPUs that are possible, and what to type: the GPU where one is left."""
    left = possible_devices(head, stated.get("plan.dtype", "bf16"))
    named, n_all = head.facts.get("gpu"), len(catalog.device_names())
    what = (
        f"names the GPU {named.text!r}, which is not known here"
        if named is not None
        else "does not say which GPU it is of"
    )
    which = "`prism-jax show devices` lists them"
    if len(left) < n_all:
        which = f"by its memory and rates {len(left)} of {n_all} known devices are possible ({some(left, MOST_DEVICES_SHOWN)})"
    return f"the {head.source} {what}; {which}", left[0] if len(left) == 1 else "NAME"


# --- Device and cluster ----------------------------------------------------------------------------------------------


def _cluster(head: Head, job: StatedJob, name: str) -> None:
    """Size of a node, where the log gives it away, and the network of the reference design."""
    n_devices = job.get("cluster.n_devices")
    size, said = _node_size(head, n_devices)
    try:
        usual = catalog.default_cluster(name, n_devices or 1)
    except Exception as error:
        raise DataError(f"{error} Give its network: --set cluster.tiers=...") from None
    if size is not None and n_devices and size != usual.node_size and size <= n_devices:
        job.put("cluster.node_size", size, why=said)
        if len(usual.tiers) > 1:
            job.put(f"cluster.tiers.{usual.tiers[0].name}.n_devices", size, why=said)
    if n_devices and n_devices > 1:
        job.assumed.append(f"network: {usual.name}, the reference design of {name}")


def _node_size(head: Head, n_devices: int | None) -> tuple[int | None, str]:
    local = head.said("local_world_size", "nproc_per_node", "gpus_per_node")
    if local is not None and local.text.isascii() and local.text.isdecimal():
        return whole(local, 1), f"line {local.line}: {local.name}"
    seen = head.most.get("most_gpu_index")
    if seen is not None:
        return int(seen) + 1, "GPUs that nvidia-smi lists"
    n_hosts = len(head.hosts) if head.has_hosts else 0
    if n_devices and n_hosts and n_devices % n_hosts == 0 and n_devices // n_hosts <= 16:
        return n_devices // n_hosts, "hosts in front of lines"
    return None, ""


def _emulated(job: StatedJob, name: str) -> None:
    """bf16 on a device that has none runs on its units of fp32: said, not refused."""
    preset = catalog.device(name)
    peaks = preset.peak_flops_per_s
    if (
        job.get("plan.dtype") != "bf16"
        or preset.generation not in BEFORE_AMPERE
        or "bf16" in peaks
        or "fp32" not in peaks
    ):
        return
    job.fields.pop("cluster.device", None)
    job.put("cluster.device.preset", name, why="emulates bf16")
    for one, peak in {**peaks, "bf16": peaks["fp32"]}.items():
        job.put(f"cluster.device.peak.{one}", f"{peak / 1e12:g} TFLOP/s", why="of the units that compute it")
    job.notes.append(f"bf16 on {name}: its matrix units have none, so products run at the rate of fp32")


LOWER = 0.95  # of the watts of a board: less is a limit that somebody set


def _limited(head: Head, job: StatedJob, name: str) -> None:
    """A power limit below that of the board, which lowers its clock."""
    said = head.facts.get("gpu_watts")
    if (
        said is None
        or job.get("cluster.device") != name
        or not 0.2 < int(said.text) / catalog.device(name).power_watts < LOWER
    ):
        return
    where = job.fields.pop("cluster.device").said
    job.put("cluster.device.preset", name, *where)
    job.put("cluster.device.power", f"{said.text} W", said, why="limit that nvidia-smi shows")
    job.notes.append(f"line {said.line}: the boards are limited to {said.text} W")


# --- Parameters ------------------------------------------------------------------------------------------------------


def rank_parameters(model: Any, plan: ParallelPlan, stage: int) -> int | None:
    """Parameters that one rank of Megatron-LM counts in a stage of the pipeline; None where that is not known.

    Notes: matrices, their inner biases and vocabularies are divided by tp; norms, outer biases and positions are not.
    """
    if (
        not isinstance(model, TransformerSpec)
        or model.n_layers % plan.pp
        or plan.layer_split
        or plan.virtual_stages > 1
    ):
        return None
    per, tp = model.n_layers // plan.pp, plan.tp
    total = 0
    outer = (model.hidden if model.bias else 0, model.hidden if model.has_mlp_bias else 0)
    for layer in range(stage * per, (stage + 1) * per):
        one = model.layer_params(layer)
        split = one.attention_qkv + one.attention_out - outer[0] + one.mlp - (outer[1] if one.mlp else 0) + one.shared
        undivided = one.norms + one.router + outer[0] + (outer[1] if one.mlp else 0)
        total += split // tp + undivided + one.experts // (plan.ep * plan.expert_tp)
    vocab = model.vocab * model.hidden // tp
    if stage == 0:
        total += vocab + (model.max_seq_len * model.hidden if model.position == "learned" else 0)
    if stage == plan.pp - 1:
        total += model.final_norm_params()
        total += vocab if not model.tied_embeddings or plan.pp > 1 else 0
    return total


def _trial(stated: StatedJob, file: str, overrides: Sequence[str], **changes: Any) -> Job:
    fields = [FieldChange(name, str(value), Mark(file)) for name, value in changes.items()]
    return job_of(apply_overrides(with_fields(stated.document("trial", file), fields), list(overrides)))


def _infer_vocab(head: Head, stated: StatedJob, file: str, overrides: Sequence[str]) -> None:
    """The vocabulary that the printed number of parameters leaves."""
    printed = head.params.get((0, 0))
    counts: list[int] = []
    if printed is not None:
        for vocab in (0, 1):
            size = stated.get("plan.tp", 1) * (1024 + 1024 * vocab)
            job = _trial(stated, file, overrides, **{"model.vocab": size})
            count = rank_parameters(job.model, job.plan, 0)
            counts += [] if count is None else [count]
    if printed is None or len(counts) < 2:
        raise DataError(
            f"the {head.source} does not say how large the vocabulary is. Give it: --set model.vocab=128256"
        )
    per_row = (counts[1] - counts[0]) / 1024.0
    rows = (int(printed.text) - counts[0]) / per_row + 1024.0
    vocab = round(rows) * stated.get("plan.tp", 1)
    if not 0 < vocab < 10**7:
        raise DataError(
            f"line {printed.line}: {int(printed.text):,} parameters do not fit the sizes of the model. Give --set model.vocab=N"
        )
    stated.put("model.vocab", vocab, printed, why="what the number of parameters leaves")


# What a head may leave unsaid, in the order in which it is tried.
_UNSAID = ("model.qkv_bias", "model.qk_norm", "model.bias", "model.tied_embeddings")


def _check_parameters(head: Head, stated: StatedJob, file: str, overrides: Sequence[str]) -> None:
    """Holds the sizes against the printed count; where one field that the head does not say decides it, that is taken."""
    printed = head.params.get((0, 0))
    if printed is None:
        return
    job = _trial(stated, file, overrides)
    error = _off(job, int(printed.text))
    if error is None or abs(error) < EXACT:
        return
    for name in _UNSAID:
        before = stated.fields.get(name)
        if before is not None and before.said:
            continue
        value = not (before.value if before is not None else False)
        other = _off(_trial(stated, file, overrides, **{name: str(value).lower()}), int(printed.text))
        if other is not None and abs(other) < EXACT:
            stated.put(name, value, printed, why="as the number of parameters has it")
            return
    if abs(error) > NEAR:
        stated.notes.append(
            f"line {printed.line}: the log prints {int(printed.text):,} parameters on the first rank, its sizes give "
            f"{1.0 + error:.3g} times as many: look for a field that was misread"
        )
        stated.doubts.append(("model: sizes that do not match the number of parameters", abs(error)))


def _off(job: Job, printed: int) -> float | None:
    count = rank_parameters(job.model, job.plan, 0)
    return None if count is None else count / printed - 1.0
