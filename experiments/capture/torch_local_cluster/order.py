"""In which order the ranks of the job run their ops: by the capture and the schedule, and as they were recorded."""

from __future__ import annotations

from prism_jax import Trace
from prism_jax.schedule.registry import SCHEDULES
from prism_jax.workload.captured.program import CapturedComm, RankClass, RankProgram

COMPUTE = {"F": "forward-compute", "B": "backward-compute"}
Lanes = dict[str, list[tuple[str, int]]]  # lane -> (op type, micro-batch) in the order of the lane


def captured_lanes(program: RankProgram, one: RankClass) -> Lanes:
    """Ops of a rank as the capture and the schedule order them; every transfer stream is a lane."""
    order = SCHEDULES.named("1f1b").lay_out(program.degree("pp"), program.micro_batches, 1)
    main = [(COMPUTE[op.parts[0][0]], op.parts[0][1]) for op in order.orders[one.stage]]
    lanes: Lanes = {"compute": main + end_of_step(one)}
    for way in ("forward", "backward"):
        micro_batches = [micro_batch for kind, micro_batch in main if kind == f"{way}-compute"]
        is_source, is_target = (one.stage > 0, one.stage < program.n_stage - 1)
        receives, sends = (is_source, is_target) if way == "forward" else (is_target, is_source)
        for end, has_it in (("recv", receives), ("send", sends)):
            if has_it:
                lanes[f"{way}-{end}"] = [(f"{way}-{end}", micro_batch) for micro_batch in micro_batches]
    return lanes


def end_of_step(one: RankClass) -> list[tuple[str, int]]:
    """What the captured update does, by its collectives: gradients over the replicas, their norm over all, the optimizer."""
    names = []
    for row in one.rows:
        if row.phase != "opt":
            continue
        if isinstance(row, CapturedComm):
            names.append("grads-reduce-scatter" if row.axis == "dp" else "optimizer-clip-main-grad")
        elif row.name.startswith("aten::_foreach") and names[-1:] != ["optimizer"]:
            names.append("optimizer")
    return [(name, -1) for name in names]


def recorded_lanes(trace: Trace, stage: int, replica: int, step: int) -> Lanes:
    """Ops of a rank as it ran them in one step, by start."""
    rows = [(trace.start_s[i, replica, step], op) for i, op in enumerate(trace.ops) if op.stage == stage]
    lanes: Lanes = {}
    for _, op in sorted(rows, key=lambda row: row[0]):
        lane = op.op_type if op.op_type.endswith(("send", "recv")) else "compute"
        lanes.setdefault(lane, []).append((op.op_type, op.micro_batch))
    return lanes


def matched(program: RankProgram, trace: Trace) -> tuple[int, int]:
    """Ops that stand where the capture says, and all recorded ones, over ranks and steps."""
    right = total = 0
    for stage in range(trace.n_stage):
        one = next(each for each in program.classes if each.stage == stage)
        expected = captured_lanes(program, one)
        for replica in range(trace.n_replica):
            for step in range(len(trace.steps)):
                found = recorded_lanes(trace, stage, replica, step)
                total += sum(map(len, found.values()))
                right += sum(
                    a == b for lane, ops in found.items() for a, b in zip(ops, expected.get(lane, []), strict=False)
                )
    return right, total
