"""A slow, independent event simulator of a recorded pipeline-parallel job: what profilers on all its workers would write down.

It knows the order of the computations of a stage, who waits for whom, and seconds of work; the recorded durations contain the
waiting. Only the order of computations comes from `prism_jax`. Rules, for replicas of `pp` stages with model chunks in turn:

- Ops of one stream of a worker run one after another. Streams: compute, each of the four kinds of transfers, parameters and
  gradients of replicas, the end of the step.
- A receive is posted when the computation before the one that needs it, in the same direction, has ended; the first backward
  receive not before the last computation but one before the first backward. A send follows its computation.
- Send and receive of one result meet: both begin when the later one is posted, each lasts as long as its own work.
- Parameters are gathered chunk by chunk across replicas; the first forward of a chunk waits for them.
- After the last computation: gc, layer norms, embeddings (first stage meets last), gradients (replicas meet), clipping (all
  stages of all replicas meet), optimizer. If gradients overlap with compute, those of a chunk follow its last backward in two
  buckets, layer norms wait for the last of them, and a separate reduction stands before clipping.
- The host launches an op some seconds after it could have started.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from prism_jax.schedule.registry import make_schedule

DIRECTIONS = {"F": ("forward", 1), "B": ("backward", -1)}


@dataclass(frozen=True)
class PipelineJob:
    """Degrees of a job.

    Attributes:
        idle_transfers: transfers that have no peer, of the first and last model chunk: "absent", "recorded", or "inner" (recorded
            but for the first receive and the last send of a stage, as Megatron leaves them out).
        overlaps: gradients are reduced while others are still computed.
    """

    pp: int
    dp: int
    n_micro_batch: int
    virtual_stages: int = 1
    idle_transfers: str = "absent"
    overlaps: bool = False


@dataclass
class Task:
    """One op of one worker; `name` is unique on the worker, `after` are names on the same worker.

    Tasks with equal `meeting` begin their work when the last of them has started. `index` counts ops of the type on the worker;
    `at_once` are those before which nothing comes on the worker.
    """

    replica: int
    stage: int
    op_type: str
    name: Hashable
    stream: str
    after: list[Hashable]
    meeting: Hashable | None = None
    micro_batch: int = -1
    chunk: int = -1
    index: int = 0
    at_once: bool = False
    work_s: float = 0.0
    host_s: float = 0.0
    start_s: float = field(default=float("nan"))
    end_s: float = field(default=float("nan"))


Seconds = Callable[[Task], float]


def simulate_step(job: PipelineJob, work_s: Seconds, host_s: Seconds = lambda task: 0.0) -> list[Task]:
    """The tasks of one step of all workers, with start and end in seconds.

    `work_s` and `host_s` are asked once per task, in an order of their own that does not depend on the answers.

    Raises:
        RuntimeError: tasks wait for each other.
    """
    tasks = [task for r in range(job.dp) for stage in range(job.pp) for task in worker_tasks(job, r, stage)]
    for task in tasks:
        task.work_s, task.host_s = work_s(task), host_s(task)
    _Run(tasks).run()
    return tasks


def worker_tasks(job: PipelineJob, replica: int, stage: int) -> list[Task]:
    """Tasks of one worker; those of a stream in the order in which they run."""
    schedule = make_schedule(
        "1f1b" if job.virtual_stages == 1 else "interleaved", job.pp, job.n_micro_batch, job.virtual_stages
    )
    computed = [tuple(op.parts[0]) for op in schedule.orders[stage]]
    program = _Program(job, replica, stage, computed)
    if job.dp > 1:
        program.gather()
    for kind in DIRECTIONS:
        program.receive(kind)
    program.compute()
    for kind in DIRECTIONS:
        program.send(kind)
    program.end()
    return program.tasks


class _Program:
    def __init__(self, job: PipelineJob, replica: int, stage: int, computed: list[tuple]) -> None:
        self.job, self.replica, self.stage, self.computed = job, replica, stage, computed
        self.n_chunk = job.pp * job.virtual_stages
        self.tasks: list[Task] = []
        self.count: dict[str, int] = defaultdict(int)
        self.inputs: dict[tuple, list[Hashable]] = defaultdict(list)  # computation -> what it waits for

    def add(self, op_type: str, name: Hashable, stream: str, after: list[Hashable], **more) -> Hashable:
        more["at_once"] = not after and all(task.stream != stream for task in self.tasks)
        self.tasks.append(
            Task(self.replica, self.stage, op_type, name, stream, after, index=self.count[op_type], **more)
        )
        self.count[op_type] += 1
        return name

    def of_kind(self, kind: str) -> list[tuple]:
        return [part for part in self.computed if part[0] == kind]

    def local(self, chunk: int) -> int:
        return chunk // self.job.pp

    def gather(self) -> None:
        for chunk in range(self.job.virtual_stages):
            op = "params-all-gather"
            self.add(op, (op, chunk), "replicas", [], meeting=(op, self.stage, chunk), chunk=chunk)
            users = [part for part in self.of_kind("F") if self.local(part[2]) == chunk]
            self.inputs[users[0]].append((op, chunk))

    def receive(self, kind: str) -> None:
        direction, way = DIRECTIONS[kind]
        mine = self.of_kind(kind)
        for index, part in enumerate(mine):
            source = part[2] - way
            if not self._recorded(source, index > 0):
                continue
            after: list[Hashable] = [mine[index - 1]] if index > 0 else []
            first = self.computed.index(mine[0])
            if kind == "B" and index == 0 and first >= 2:
                after.append(self.computed[first - 2])
            meeting = self._meeting(kind, part[1], source, part[2])
            self.inputs[part].append(
                self.add(f"{direction}-recv", ("recv", part), f"{direction}-recv", after, **meeting)
            )

    def compute(self) -> None:
        for part in self.computed:
            kind, micro_batch, chunk = part
            where = {"micro_batch": micro_batch, "chunk": self.local(chunk)}
            self.add(f"{DIRECTIONS[kind][0]}-compute", part, "compute", self.inputs[part], **where)

    def send(self, kind: str) -> None:
        direction, way = DIRECTIONS[kind]
        mine = self.of_kind(kind)
        for index, part in enumerate(mine):
            reader = part[2] + way
            if self._recorded(reader, index < len(mine) - 1):
                meeting = self._meeting(kind, part[1], part[2], reader)
                self.add(f"{direction}-send", ("send", part), f"{direction}-send", [part], **meeting)

    def _recorded(self, peer: int, inner: bool) -> bool:
        idle = {"absent": False, "recorded": True, "inner": inner}[self.job.idle_transfers]
        return 0 <= peer < self.n_chunk or idle

    def _meeting(self, kind: str, micro_batch: int, sender: int, reader: int) -> dict:
        real = 0 <= sender < self.n_chunk and 0 <= reader < self.n_chunk
        return {"meeting": (self.replica, kind, micro_batch, sender) if real else None}

    def end(self) -> None:
        """What follows the last computation; each op after the one before it."""
        replicas = self.job.dp > 1
        scattered = self._overlapped() if replicas and self.job.overlaps else []
        last = [*self._after(["gc"], [self.computed[-1]]), *scattered]
        last = self._after(["layernorm-grads-all-reduce"], last)
        if self.stage in (0, self.job.pp - 1) and self.job.pp > 1:
            last = self._after(["embedding-grads-all-reduce"], last, meeting=(self.replica, "embedding"))
        if replicas and self.job.overlaps:
            last = self._after(["separate-grads-all-reduce"], last, meeting=("separate", self.stage))
        elif replicas:
            for chunk in range(self.job.virtual_stages):
                last = [self._scatter(chunk, 0, last)]
        last = self._after(["optimizer-clip-main-grad"], last, meeting="clip")
        self._after(["optimizer"], last)

    def _after(self, op_types: list[str], after: list[Hashable], **more) -> list[Hashable]:
        for op in op_types:
            after = [self.add(op, op, "end", after, **more)]
        return after

    def _overlapped(self) -> list[Hashable]:
        """Two buckets per chunk; the last chunk of the stage is done first."""
        last: list[Hashable] = []
        for chunk in reversed(range(self.job.virtual_stages)):
            makers = [part for part in self.of_kind("B") if self.local(part[2]) == chunk]
            self._scatter(chunk, 0, [makers[-1]])
            last = [self._scatter(chunk, 1, [])]
        return last

    def _scatter(self, chunk: int, bucket: int, after: list[Hashable]) -> Hashable:
        op = "grads-reduce-scatter"
        return self.add(
            op, (op, chunk, bucket), "replicas", after, meeting=(op, self.stage, chunk, bucket), chunk=chunk
        )


class _Run:
    """A heap of what happens next."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks
        self.queues: dict[tuple[int, int], dict[str, list[Task]]] = defaultdict(lambda: defaultdict(list))
        for task in reversed(tasks):
            self.queues[task.replica, task.stage][task.stream].append(task)
        self.expected: dict[Hashable, int] = defaultdict(int)
        for task in tasks:
            self.expected[task.meeting] += 1
        self.arrived: dict[Hashable, list[Task]] = defaultdict(list)
        self.busy: set[tuple[int, int, str]] = set()
        self.done: dict[tuple[int, int], set[Hashable]] = defaultdict(set)
        self.events: list[tuple[float, int, str, Task]] = []
        self.count = itertools.count()  # events at the same instant happen in the order they were posted

    def run(self) -> None:
        for worker in list(self.queues):
            self._launch(0.0, worker)
        while self.events:
            now_s, _, what, task = heapq.heappop(self.events)
            if what == "start":
                task.start_s = now_s
                self._meet(now_s, task)
            else:
                task.end_s = now_s
                self.busy.discard((task.replica, task.stage, task.stream))
                self.done[task.replica, task.stage].add(task.name)
                self._launch(now_s, (task.replica, task.stage))
        if any(task.end_s != task.end_s for task in self.tasks):
            raise RuntimeError("deadlock")

    def _post(self, time_s: float, what: str, task: Task) -> None:
        heapq.heappush(self.events, (time_s, next(self.count), what, task))

    def _launch(self, now_s: float, worker: tuple[int, int]) -> None:
        for stream, queue in self.queues[worker].items():
            if queue and (*worker, stream) not in self.busy and self.done[worker].issuperset(queue[-1].after):
                self.busy.add((*worker, stream))
                task = queue.pop()
                self._post(now_s + task.host_s, "start", task)

    def _meet(self, now_s: float, task: Task) -> None:
        if task.meeting is None:
            self._post(now_s + task.work_s, "end", task)
            return
        arrived = self.arrived[task.meeting]
        arrived.append(task)
        if len(arrived) == self.expected[task.meeting]:
            for other in arrived:
                self._post(now_s + other.work_s, "end", other)
