"""Processes that do one piece of work together, on one host or many: who they are, how rows pass between them, who was lost.

`jax.distributed` joins them (gloo between processors, NCCL between GPUs). All run the same program; work is dealt by rows, every
process gathers all answers, and goes on with the same numbers. Rows travel as bytes, so that no digit changes. Where a process is
lost, JAX aborts the others, and a collective may never end. So the first process and every other exchange a sign of life each
second; where one falls silent, or says why it stops, all keep what they have done and end with one sentence.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from .errors import DataError, PrismError, printable, shortened
from .kept_work import identity, save_all
from .lazy import np
from .processes import COUNTED_BY, OWN_PART
from .use_case import Option, OptionGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

FORM = re.compile(r"(\d{1,6})/(\d{1,6})@(\[[0-9A-Fa-f:.]+\]|[^\s:/@]+):(\d{1,5})")
WAIT_S = 120  # for all processes to start
SILENCE_S = 60.0  # of a process that is taken for lost: JAX takes 100 s, and aborts
EACH_S = 1.0  # between two signs of life
WRONG = 2  # exit code
_STOPPED = " stopped: "


def check_processes(option: str, where: str | None) -> None:
    """Refuses what does not name the processes.

    Raises:
        DataError: neither auto nor I/N@HOST:PORT.
    """
    if where not in (None, "auto"):
        _read(option, str(where))


@dataclass(frozen=True)
class Together(OptionGroup):
    """Processes that share one piece of work; all are started with the same words, and the first answers.

    Attributes:
        processes: share the work with other processes: auto under srun or mpirun, or I/N@HOST:PORT of process I of N, HOST:PORT
            being a free port of the first.
    """

    processes: Annotated[str | None, Option("--processes", "WHERE", key=None, check=check_processes)] = None


def _read(option: str, where: str) -> tuple[int, int, str]:
    """(number of this process, of all, address of the first)."""
    found = FORM.fullmatch(where)
    number, count, port = (int(found[k]) for k in (1, 2, 4)) if found else (0, 0, 0)
    if not found or not 0 <= number < count or not 0 < port < 1 << 16:
        raise DataError(
            f"{option}: {where!r} names no process. Give auto under srun or mpirun, or I/N@HOST:PORT, such as "
            "0/2@10.0.0.1:9000 for the first of two and 1/2@10.0.0.1:9000 for the other."
        )
    return number, count, f"{found[3]}:{port}"


def _stated() -> tuple[int, int, str] | None:
    """Returns the same as the environment states it; None where JAX has to find it."""
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    for number, count in (("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"), *COUNTED_BY):
        if address and number in os.environ and count in os.environ:
            return _read("JAX_COORDINATOR_ADDRESS", f"{os.environ[number]}/{os.environ[count]}@{address}")
    return None


def n_processes() -> int:
    """Number of processes that JAX has joined; 1 where JAX was not imported."""
    jax = sys.modules.get("jax")
    return 1 if jax is None or not jax.distributed.is_initialized() else jax.process_count()


def process_number() -> int:
    """Number of this process among those that JAX has joined, from 0."""
    return sys.modules["jax"].process_index() if n_processes() > 1 else 0


@contextmanager
def together(where: str | None, *parts: object) -> Iterator[None]:
    """Work inside the block is shared with other processes; nothing happens for None.

    Args:
        where: as `Together.processes`.
        parts: values that must be the same in all processes, as `content_hash` takes them, besides code and packages.

    Raises:
        DataError: processes cannot be joined, or differ.

    Notes:
        Where a process is lost while this one computes, this one says so and ends (exit code 2).
    """
    if where is None:
        yield
        return
    with _stdout_kept():
        watch = _join(where)
        OWN_PART.number = watch.number
        try:
            check_alike(*parts)
            yield
        except BaseException as error:
            watch.stop(error)
            raise
        watch.finish()


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Lets nothing inside the block write to standard output: gloo says there that it is connected."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _join(where: str) -> _Watch:
    """Starts JAX as one of several processes, and the watch."""
    import jax  # here, as all of JAX in this file: what nobody asked for is not loaded

    given = _stated() if where == "auto" else _read("--processes", where)
    host = socket.gethostname() if given is None else given[2].rpartition(":")[0].strip("[]")
    named = (
        {} if given is None else {"process_id": given[0], "num_processes": given[1], "coordinator_address": given[2]}
    )
    if given is not None and _is_loopback(host):
        named["coordinator_bind_address"] = given[2]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    alone = threading.Timer(WAIT_S, _end, [_NOT_JOINED.format(where, f"none within {WAIT_S} s")])
    alone.daemon = True
    alone.start()
    try:
        jax.distributed.initialize(**named, initialization_timeout=2 * WAIT_S)
    except Exception as error:  # JAX has many kinds
        raise DataError(_NOT_JOINED.format(where, " ".join(str(error).split())[:200].rstrip("."))) from None
    finally:
        alone.cancel()
    with suppress(ImportError, AttributeError):  # of another JAX: all goes on, more slowly
        _keep_own_programs()
    return _Watch.among(jax.process_index(), jax.process_count(), host)


def _keep_own_programs() -> None:
    """Lets any process keep the programs that it compiles.

    Notes: JAX lets the first alone, but of processors the number of the device is part of a program's name. So the others would
        find none, and compile all in every run. JAX 0.10 has no switch for this.
    """
    from jax._src import compiler, distributed

    write, state = compiler._cache_write, distributed.global_state

    def written_as_by_the_first(*program: Any, **named: Any) -> None:
        number, state.process_id = state.process_id, 0
        try:
            write(*program, **named)
        finally:
            state.process_id = number

    compiler._cache_write = written_as_by_the_first


_NOT_JOINED = (
    "--processes: {} does not meet the others ({}). Start all processes at the same time with the same command, and with an "
    "address of the first that the others reach; auto needs srun, mpirun or the variables of JAX."
)


def _end(text: str) -> NoReturn:
    """Ends this process at once, from any thread, after a sentence and with the exit code of wrong input."""
    sys.stderr.write(f"error: {shortened(printable(text))}\n")
    sys.stderr.flush()
    os._exit(WRONG)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class _Watch:
    """Connections between the first process and every other, on which each shows that it lives.

    Args:
        peers: number -> connection.
    """

    def __init__(self, number: int, count: int, peers: Mapping[int, socket.socket]) -> None:
        self.number, self.count, self._done = number, count, threading.Event()
        self._peers, self._left = dict(peers), set[int]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @classmethod
    def among(cls, number: int, count: int, host: str) -> _Watch:
        """Connects with the first process, or as that with all others."""
        token, port, peers, server = secrets.token_bytes(16), 0, dict[int, socket.socket](), None
        if number == 0:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            server = socket.create_server((host if _is_loopback(host) else "", 0), family=family, backlog=count)
            port = server.getsockname()[1]
        said = token + port.to_bytes(4, "big") + host.encode()[:255].ljust(255, b"\0")
        first = bytes(gathered_rows(np.frombuffer(said, np.uint8), np.repeat(np.arange(count), len(said))))[: len(said)]
        token, port, host = first[:16], int.from_bytes(first[16:20], "big"), first[20:].rstrip(b"\0").decode()
        try:
            if server is None:
                peers[0] = socket.create_connection((host, port), timeout=WAIT_S)
                peers[0].sendall(token + number.to_bytes(4, "big"))
            else:
                server.settimeout(WAIT_S)
                while len(peers) < count - 1:
                    peer, _ = server.accept()
                    peer.settimeout(WAIT_S)
                    hello = peer.recv(20, socket.MSG_WAITALL)
                    if secrets.compare_digest(hello[:16], token):
                        peers[int.from_bytes(hello[16:], "big")] = peer
        except OSError as error:
            raise DataError(f"--processes: no connection with {host} port {port} ({error}).") from None
        return cls(number, count, peers)

    @property
    def is_over(self) -> bool:
        """Whether this process has left the others, or is about to."""
        return self._done.is_set()

    def _run(self) -> None:
        """Sends a sign of life each second, whatever is heard meanwhile, and awaits those of others, until it leaves."""
        heard = dict.fromkeys(self._peers, time.monotonic())
        rest = dict.fromkeys(self._peers, b"")
        next_s = time.monotonic()
        while not self.is_over:
            if time.monotonic() >= next_s:
                self._say(b"\n")
                next_s = time.monotonic() + EACH_S
            for number in self._ready(max(next_s - time.monotonic(), 0.0)):
                data = b""
                with suppress(OSError):
                    data = self._peers[number].recv(4096)
                if not data:
                    self._lose(number, "its connection ended")
                    continue
                heard[number] = time.monotonic()
                *lines, rest[number] = (rest[number] + data).split(b"\n")
                for line in lines:
                    self._hear(number, line.decode(errors="replace"))
            for number in self._peers.keys() - self._left:
                if time.monotonic() - heard[number] > SILENCE_S:
                    self._lose(number, f"it has said nothing for {SILENCE_S:.0f} s")

    def _ready(self, wait_s: float) -> list[int]:
        """Peers that have said something, or left; waits for them no longer than `wait_s`."""
        sockets = {self._peers[number]: number for number in self._peers.keys() - self._left}
        if not sockets:
            time.sleep(wait_s)
            return []
        return [sockets[own] for own in select.select([*sockets], [], [], wait_s)[0]]

    def _hear(self, number: int, line: str) -> None:
        if line == "bye":
            self._left.add(number)
        elif line:
            self._leave(line)

    def _lose(self, number: int, why: str) -> None:
        if number not in self._left:
            self._left.add(number)
            self._leave(f"process {number} of {self.count} was lost ({why})")

    def _leave(self, text: str) -> None:
        """Ends this process, which cannot go on, unless it is about to end by itself."""
        self._say(text.encode() + b"\n")
        if _STOPPED in text and self._done.wait(EACH_S):  # what stops one often stops all, each with its own words
            return
        if self.is_over:
            return
        with suppress(Exception):
            save_all()
        _end(f"{text.rstrip('.')}. Start all processes again; with --resume FILE they go on from what is kept.")

    def _say(self, text: bytes) -> None:
        for number in self._peers.keys() - self._left:
            with suppress(OSError):
                self._peers[number].sendall(text)

    def stop(self, error: BaseException) -> None:
        """Tells the others that this process ends by an error."""
        if not isinstance(error, PrismError | KeyboardInterrupt | SystemExit):
            # a collective fails a moment before the loss of a peer is known, which ends us
            self._thread.join(3 * EACH_S)
        OWN_PART.has_failed = True
        self._done.set()
        said = " ".join(str(error).split()) if isinstance(error, PrismError) else type(error).__name__
        self._say(f"process {self.number} of {self.count}{_STOPPED}{said}\n".encode())

    def finish(self) -> None:
        """Leaves together with all others."""
        import jax

        self._say(b"bye\n")
        jax.distributed.shutdown()
        self._done.set()


def gathered_rows(own: NDArray[Any], owner: Rows) -> NDArray[Any]:
    """Rows of all processes [row, ...].

    Args:
        own: rows of this process [own row, ...], in their order.
        owner: number of the process that has each row [row], the same in all.
    """
    count = n_processes()
    if count == 1:
        return own
    from jax.experimental import multihost_utils

    n_row, row_bytes = np.bincount(owner, minlength=count), own.dtype.itemsize * int(np.prod(own.shape[1:]))
    size = max(64, int(n_row.max()) * row_bytes)
    size = 1 << (size - 1).bit_length() if size < 1 << 20 else size  # few shapes: each compiles a program
    sent = np.zeros(size, np.uint8)
    sent[: own.nbytes] = np.frombuffer(np.ascontiguousarray(own).tobytes(), np.uint8)
    every = np.asarray(multihost_utils.process_allgather(sent))
    found = np.empty((len(owner), *own.shape[1:]), own.dtype)
    for number, n in enumerate(n_row):
        part = every[number, : n * row_bytes].tobytes()
        found[owner == number] = np.frombuffer(part, own.dtype).reshape(n, *own.shape[1:])
    return found


def dealt(owner: Rows, compute: Callable[[Rows], NDArray[Any]], shape: Sequence[int] = ()) -> NDArray[Any]:
    """All rows [row, *shape] of numbers, each computed by its owner.

    Args:
        owner: number of the process that computes each row [row].
        compute: called with the places of some rows; must give each row the same digits, whatever rows come with it.
    """
    if n_processes() == 1:
        return compute(np.arange(len(owner)))
    own = np.flatnonzero(owner == process_number())
    return gathered_rows(compute(own) if len(own) else np.empty((0, *shape)), owner)


def owners(work: NDArray[Any]) -> Rows:
    """Number of the process [row] that computes each row: rows that follow each other have one, and all have as much work.

    Args:
        work: [row] how long each takes, in any unit.
    """
    middle = np.cumsum(work) - 0.5 * work
    total = max(float(np.sum(work)), 1e-300)
    return np.minimum(middle / total * n_processes(), n_processes() - 1).astype(np.intp)


def of_first(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of the first process, by name, in all."""
    if n_processes() == 1:
        return dict(arrays)
    stream = io.BytesIO()
    if process_number() == 0:
        named: dict[str, Any] = {f"{k}": np.asarray(value) for k, value in enumerate(arrays.values())}
        np.savez(stream, **named, names=[*arrays, ""])
    own = np.frombuffer(stream.getvalue(), np.uint8)
    length = int(gathered_rows(np.array([len(own)]), np.arange(n_processes()))[0])
    sent = gathered_rows(own, np.zeros(length, np.intp))
    with np.load(io.BytesIO(sent.tobytes()), allow_pickle=False) as archive:
        return {str(name): archive[f"{k}"] for k, name in enumerate(archive["names"][:-1])}


def check_alike(*parts: object) -> None:
    """Refuses to work together with processes of another code, other packages or another input.

    Args:
        parts: as `identity` takes them.

    Raises:
        DataError: the processes that differ from the first.
    """
    if n_processes() == 1:
        return
    import jax

    from .executor import worker_kind  # which few commands need

    own = identity(*parts, worker_kind().cpu, jax.default_backend()).encode()
    every = gathered_rows(np.frombuffer(own, np.uint8)[None], np.arange(n_processes()))
    others = np.flatnonzero((every != every[0]).any(axis=1))
    if len(others):
        raise DataError(
            f"--processes: process {', '.join(map(str, others))} of {n_processes()} differs from the first in its job, a file, "
            "an option, the seed, the type of CPU, or the version of prism-jax, JAX, NumPy or SciPy. Start all with the same "
            "command and installation, on alike machines."
        )
