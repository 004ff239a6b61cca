"""`prism-jax trace info FILE` and `prism-jax trace replay FILE`."""

from __future__ import annotations

from ...options import Json
from ...output import print_json
from .file import Meta, TraceFile, recorded, recorded_ops


def info(file: TraceFile, meta: Meta = None, json: Json = False) -> None:
    """Say what a trace or log holds."""
    found = recorded(file, meta)
    from ....report.trace_lines import info_lines
    from ....report.trace_summary import info_dict

    summary = info_dict(found)
    if json:
        print_json(summary)
    else:
        print("\n".join(info_lines(summary)))


def replay(file: TraceFile, meta: Meta = None, json: Json = False) -> None:
    """Replay the recorded durations and compare the steps with the recorded ones."""
    trace = recorded_ops(file, meta)
    from ....start_jax import start_jax

    start_jax()
    from ....io.write import run_record
    from ....recorded.replay_recorded import replay_recorded
    from ....report.trace_lines import replay_lines
    from ....report.trace_summary import info_dict

    summary = replay_recorded(trace)
    if json:
        steps = {"steps": trace.steps, "recorded_s": trace.step_s}
        print_json({**info_dict(trace), "replay": summary, **steps, **run_record({"file": file, "meta": meta}, None)})
    else:
        print("\n".join(replay_lines(info_dict(trace), summary)))
