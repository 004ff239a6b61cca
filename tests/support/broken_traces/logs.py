"""Broken training logs."""

import json

from .kinds import bytes_file


def mllog_line(key: str, time_ms: object, value: object = None, **metadata: object) -> str:
    """A line of an MLPerf log."""
    entry = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**entry, "metadata": metadata}) + "\n"


def log_file(name: str, text: str, match: str) -> None:
    """A kind that is a text log."""
    bytes_file(name, "train.log", text.encode(), match)


MEGATRON = " iteration       10/  100 | elapsed time per iteration (ms): {} | lm loss: 2.1E+00 |\n"
log_file("log without iterations", "Loading the model\nloss: 1\n", ": no line with a step time.*Megatron-LM")
log_file("log with a negative time", MEGATRON.format(12.0) + MEGATRON.format(-5.0), r":2 elapsed time .*-0\.005 s")
log_file("log with a time of zero", MEGATRON.format(0.0), r":1 elapsed time per iteration \(ms\): 0 s")
log_file("log with a time that is no number", MEGATRON.format("nan"), r":1 elapsed time per iteration \(ms\): nan s")
log_file("log with a time of dashes", MEGATRON.format("--"), ": 1 numbered line of Megatron-LM, but not how long")
log_file("MLPerf log that is cut", mllog_line("run_start", 1) + ':::MLLOG {"key": "ru', ":2: not JSON after :::MLLOG")
log_file("MLPerf entry without JSON", ":::MLLOG none\n", r":1: no \{ after :::MLLOG")
log_file("MLPerf entry without key", ':::MLLOG {"time_ms": 1}\n', ":1 key: None is not text")
log_file("MLPerf entry without time", ':::MLLOG {"key": "run_start"}\n', ":1 time_ms: None is not a time")
log_file("MLPerf entry with a time of 1e30", mllog_line("run_start", 1e30), r":1 time_ms: 1e\+30 is not a time")
log_file("MLPerf entry with a huge integer", ':::MLLOG {"key": "a", "time_ms": ' + "9" * 5000 + "}\n", ":1: not JSON")
log_file("MLPerf entry nested deeply", ':::MLLOG {"key": ' + "[" * 100_000 + "\n", ":1: not JSON after")
log_file("MLPerf log without steps", mllog_line("run_start", 1) + mllog_line("run_stop", 9), ": no step times")
log_file(
    "MLPerf log with a negative count",
    mllog_line("train_loss", 1, 2.0, step_num=-1),
    ":1 step_num: -1 is not a number of",
)
log_file(
    "MLPerf log with a negative step time",
    mllog_line("tracked_stats", 1, {"train_step_time": -1.0}, step_num=1),
    r":1 train_step_time: -1\.0 is not a step time",
)
log_file(
    "MLPerf log whose clock goes back",
    mllog_line("train_loss", 5000, 2.0, step_num=1) + mllog_line("train_loss", 4000, 2.0, step_num=2),
    ":2 time_ms: the clock goes back",
)

MAXTEXT = "completed step: {}, seconds: {}, TFLOP/s/device: 180.1, loss: 10.9\n"
log_file("MaxText log with a time of zero", MAXTEXT.format(3, 0.0), ":1 seconds: 0 s is not a step time")
log_file(
    "torchtitan log without a clock",
    "step:  1  loss:  8.12  memory:  1.41GiB(1.79%)  tps: 7,831  mfu: 1.86%\n" * 2,
    ": 1 step of torchtitan .* nor the lines 'Training starts at",
)
log_file(
    "DeepSpeed log of one step",
    "[2023-07-25 21:03:21,037] [INFO] [logging.py:96:log_dist] [Rank 0] step=35, skipped=0, lr=[2e-06], mom=[]\n",
    ": 1 numbered line of DeepSpeed, but not how long",
)
