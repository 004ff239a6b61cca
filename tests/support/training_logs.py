"""Training logs of known step times, as the frameworks write them; each says how far it rounds."""

import gzip
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.trace.step_log import StepLog

START = datetime(2025, 3, 12, 11, 10, 20, 511_000, tzinfo=UTC)


def read_log(folder: Path, content: str | bytes, name: str = "train.log", **stated: Any) -> StepLog:
    """The steps of a file that holds this, packed if its name says so; what is stated goes to `open_trace`."""
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = open_trace(folder / name, **stated)
    assert isinstance(found, StepLog)
    return found


def clock(elapsed_s: float) -> str:
    """As Python's logging writes the time: milliseconds behind a comma."""
    at = START + timedelta(seconds=elapsed_s)
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"


def torchtitan(step_s: Sequence[float], every: int = 1, colours: bool = True) -> str:
    """Lines of ranks 0 and 1; step 1 is logged first, then every `every` steps."""
    red, green, blue, end = ("\x1b[31m", "\x1b[32m", "\x1b[34m", "\x1b[39m") if colours else ("", "", "", "")
    text = "[rank0]:[titan] 2025-03-12 11:09:58,101 - root - INFO - Building 1-D device mesh with ['dp_shard'], [8]\n"
    elapsed_s = 0.0
    for step, seconds in enumerate(step_s, start=1):
        elapsed_s += seconds
        if step == 1 or step % every == 0:
            for rank in (0, 1):
                text += (
                    f"[rank{rank}]:[titan] {clock(elapsed_s)} - root - INFO - {red}step: {step:2}  {green}loss:  6.225  "
                    f"grad_norm:  1.6558  {blue}memory: 66.91GiB(37.51%)  tps: {round(8192 / seconds):,}  "
                    f"tflops: 314.71  mfu: 13.99%{end}\n"
                )
    return text


def deepspeed_steps(step_s: Sequence[float]) -> str:
    """Lines of the engine and of its throughput timer."""
    text, elapsed_s = "", 0.0
    for step, seconds in enumerate(step_s, start=1):
        elapsed_s += seconds
        text += (
            f"[{clock(elapsed_s)}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, "
            f"lr=[2.17e-06, 2.17e-06], mom=[[0.9, 0.95], [0.9, 0.95]]\n"
            f"[{clock(elapsed_s)}] [INFO] [timer.py:215:stop] epoch=0/micro_step={step}/global_step={step}, "
            f"RunningAvgSamplesPerSec={64 / seconds}, CurrSamplesPerSec={64 / seconds}, MemAllocated=59.65GB\n"
        )
    return text


def deepspeed_throughput(step_s: Sequence[float]) -> str:
    """The throughput timer without the time of day, after the configuration."""
    text = "[INFO] [config.py:1000:print]   train_batch_size ............. 64\n"
    for step, seconds in enumerate(step_s, start=1):
        text += (
            f"epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=7.9, CurrSamplesPerSec={64 / seconds}, "
            "MemAllocated=1GB\n"
        )
    return text


def deepspeed_breakdown(step_s: Sequence[float]) -> str:
    """wall_clock_breakdown: micro-steps and steps."""
    text = ""
    for seconds in step_s:
        ms = [1e3 * seconds * share for share in (0.3, 0.6, 0.1)]
        fields = (
            f"fwd{{0}}: {ms[0]:.2f} | bwd{{0}}: {ms[1]:.2f} | bwd_inner{{0}}: {ms[1]:.2f} | bwd_allreduce{{0}}: 0.00 | "
            f"step{{0}}: {ms[2]:.2f}\n"
        )
        for suffix in ("_microstep", ""):
            text += "[2023-07-25 21:03:17,269] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | " + fields.format(
                suffix
            )
    return text


def deepspeed_pipeline(step_s: Sequence[float]) -> str:
    """The pipeline engine."""
    return "".join(
        f"steps: {step} loss: 9.5312 iter time (s): {seconds:.3f} samples/sec: {64 / seconds:.3f}\n"
        for step, seconds in enumerate(step_s, start=1)
    )


def maxtext(step_s: Sequence[float]) -> str:
    """Lines with the prefix of absl."""
    return "".join(
        f"I0811 21:54:55.531340 138304841739136 metric_logger.py:226] completed step: {step}, seconds: {seconds:.3f}, "
        f"TFLOP/s/device: 350.869, Tokens/s/device: 19222.175, total_weights: 1572864, loss: 12.979\n"
        for step, seconds in enumerate(step_s)
    )


def megatron(step_s: Sequence[float]) -> str:
    """Lines of every iteration."""
    return "".join(
        f" [2025-03-02 10:14:01] iteration {step:8d}/   5000 | consumed samples: {512 * step:12d} | "
        f"elapsed time per iteration (ms): {1e3 * seconds:.1f} | learning rate: 4.5E-06 | lm loss: 1.087654E+01 |\n"
        for step, seconds in enumerate(step_s, start=1)
    )


def table(step_s: Sequence[float]) -> str:
    """CSV with milliseconds."""
    return "step,loss,iteration_time_ms\n" + "".join(f"{n},2.5,{1e3 * s:.3f}\n" for n, s in enumerate(step_s, start=1))


def wandb_chart(step_s: Sequence[float]) -> str:
    """What W&B exports of a chart of one run."""
    name = "run-7 - perf/step_time_seconds"
    rows = "".join(f'"{n}","{s:.6f}","{s:.6f}","{s:.6f}"\n' for n, s in enumerate(step_s, start=1))
    return f'"Step","{name}","{name}__MIN","{name}__MAX"\n' + rows


def wandb_history(step_s: Sequence[float]) -> str:
    """Records of a W&B run whose step time carries no unit."""
    text, elapsed_s = "", 0.0
    for step, seconds in enumerate(step_s, start=1):
        elapsed_s += seconds
        record = {"_step": step, "_runtime": elapsed_s, "_timestamp": 1.7e9 + elapsed_s, "train/loss": 2.5}
        text += json.dumps({**record, "train/step_time": round(1e3 * seconds, 4)}) + "\n"
    return text


def tensorboard_csv(step_s: Sequence[float]) -> str:
    """What TensorBoard exports of a loss: the clock alone says something of steps. One row more than there are steps."""
    text, elapsed_s = "Wall time,Step,Value\n1700000000.0,0,9.5\n", 0.0
    for step, seconds in enumerate(step_s, start=1):
        elapsed_s += seconds
        text += f"{1.7e9 + elapsed_s:.6f},{step},9.5\n"
    return text


@dataclass(frozen=True)
class Written:
    """A kind of log.

    Attributes:
        write: step times -> text.
        name: of the file.
        rounds_s: by how much a time that is read back may be off.
        lost: first steps that cannot be read back, since they only start the clock.
    """

    write: Callable[[Sequence[float]], str]
    name: str
    rounds_s: float
    framework: str
    lost: int = 0


LOGS = {
    "Megatron-LM": Written(megatron, "train.log", 0.5e-4, "Megatron-LM"),
    "torchtitan": Written(torchtitan, "train.log", 1.1e-3, "torchtitan", lost=1),
    "DeepSpeed steps": Written(deepspeed_steps, "train.log", 1.1e-3, "DeepSpeed", lost=1),
    "DeepSpeed throughput": Written(deepspeed_throughput, "train.log", 1e-9, "DeepSpeed"),
    "DeepSpeed breakdown": Written(deepspeed_breakdown, "train.log", 2e-5, "DeepSpeed"),
    "DeepSpeed pipeline": Written(deepspeed_pipeline, "train.log", 0.6e-3, "DeepSpeed"),
    "MaxText": Written(maxtext, "train.log", 0.6e-3, "MaxText"),
    "table": Written(table, "steps.csv", 1e-6, ""),
    "W&B chart": Written(wandb_chart, "wandb_export.csv", 1e-6, ""),
    "W&B history": Written(wandb_history, "history.jsonl", 1e-6, ""),
    "TensorBoard CSV": Written(tensorboard_csv, "run-a-tag-train_loss.csv", 3e-6, ""),
}


def event_record(event: bytes) -> bytes:
    """A record of an event file, with checksums of zero, which nothing reads."""
    return struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4)


def event(wall_time_s: float, step: int, tag: str, value: float, as_tensor: bool = False) -> bytes:
    """An Event with one scalar."""
    if as_tensor:
        tensor = b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", value)  # DT_FLOAT, no dimensions, tensor_content
        content = b"\x42" + varint(len(tensor)) + tensor
    else:
        content = b"\x15" + struct.pack("<f", value)
    one = b"\x0a" + varint(len(tag)) + tag.encode() + content
    summary = b"\x0a" + varint(len(one)) + one
    return b"\x09" + struct.pack("<d", wall_time_s) + b"\x10" + varint(step) + b"\x2a" + varint(len(summary)) + summary


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


VERSION = event_record(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2")


def event_file(step_s: Sequence[float], tag: str, unit_s: float = 1.0, as_tensor: bool = False) -> bytes:
    """An event file with one tag."""
    found, elapsed_s = VERSION, 0.0
    for step, seconds in enumerate(step_s, start=1):
        elapsed_s += seconds
        found += event_record(event(1.7e9 + elapsed_s, step, tag, seconds / unit_s, as_tensor))
    return found
