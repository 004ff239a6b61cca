"""Dependencies of a trace whose op types say nothing: streams run in order, groups meet, the rest is read off the recording.

Used for profiles of arbitrary jobs (FSDP, data parallel, DLRM): ops of one stream of one worker follow each other, members of a
named group meet. What else an op waits for is found by `waits.observed_waits`.
"""

from __future__ import annotations

from collections import defaultdict

from .dependencies import Dependencies, Lane, Links
from .trace import Trace


def recorded_order(trace: Trace) -> Dependencies:
    """Dependencies from streams and groups alone.

    Raises:
        DataError: groups were entered in an order that waits in a circle.
    """
    links = Links(trace)
    first = trace.start_s[:, 0, 0]
    streams: dict[tuple[int, str], list[int]] = defaultdict(list)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, op in enumerate(trace.ops):
        streams[op.stage, op.stream or op.op_type].append(index)
        if op.group:
            groups[op.group].append(index)
    for (stage, stream), ops in sorted(streams.items()):
        links.on_lane(sorted(ops, key=lambda op: (first[op], trace.ops[op].seq)), Lane(stage, 0, stream))
    links.groups += list(groups.values())
    if trace.n_replica > 1:
        links.meeting.update(op for ops in groups.values() for op in ops)
    return links.done()
