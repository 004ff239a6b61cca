"""The server of `prism-jax serve` under load: cold start over 1,000 reports, 20 clients at once, 1,000 malformed requests.

    python -m benchmarks.serve

Starts a server on a folder of copies of one prediction, and prints each figure next to its bar. Processor seconds and memory are
those of the server process, without its workers; walls are spoilt by other load.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

N_REPORTS, N_CLIENTS, N_REQUESTS, N_MALFORMED = 1000, 20, 50, 1000
BARS = {"processor seconds to the first page": 2.0, "MB": 300.0, "p95 of cached answers, ms": 200.0}
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")
JOB = "llama2_7b_fsdp_64"


def fill(folder: Path) -> None:
    """Copies of one prediction under other names and of other times."""
    command = [sys.executable, "-m", "prism_jax", "predict", JOB, "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    for number in range(N_REPORTS):
        report["job"]["name"] = f"job_{number:04d}"
        report["step_time_s"]["p50"] *= 1.0 + 1e-4 * number
        (folder / f"predict-{number:04d}.json").write_text(json.dumps(report, indent=2))
    (folder / "job.yaml").write_text(report["record"]["job_file"])
    rows = (f"{step},{rank},{1.0 + 0.001 * (7 * step + rank) % 5}" for step in range(1000) for rank in range(8))
    (folder / "steps.csv").write_text("\n".join(["step,rank,duration_s", *rows]) + "\n")


class Server:
    """A running server, and the cookie of a browser that has shown its token."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str) -> None:
        self.process, self.port = process, port
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", f"/?token={token}")
        answer = connection.getresponse()
        answer.read()
        self.headers = {"Cookie": str(answer.headers["set-cookie"]).partition(";")[0]}

    def get(self, path: str, connection: HTTPConnection | None = None) -> tuple[int, bytes]:
        """Status and body of one answer."""
        own = connection or HTTPConnection("127.0.0.1", self.port, timeout=60)
        own.request("GET", path, headers=self.headers)
        answer = own.getresponse()
        return answer.status, answer.read()

    def used(self) -> tuple[float, float]:
        """Processor seconds and peak memory in MB of the server itself."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        return ticks / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1024.0


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server on a free port, ended with the block."""
    command = [sys.executable, "-m", "prism_jax", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = next(found for line in process.stdout if (found := LINK.search(line)))
        yield Server(process, int(found[1]), found[2])
    finally:
        process.terminate()
        process.wait()


def load(server: Server) -> list[float]:
    """Milliseconds of each answer to clients that ask at the same time."""
    names = [f"predict-{number:04d}.json" for number in range(N_CLIENTS)]
    for name in names:
        assert server.get(f"/answer?file={name}")[0] == 200

    def one(number: int) -> list[float]:
        connection, took = HTTPConnection("127.0.0.1", server.port, timeout=60), []
        for _ in range(N_REQUESTS):
            started = time.perf_counter()
            status, body = server.get(f"/answer?file={names[number]}", connection)
            took.append(1e3 * (time.perf_counter() - started))
            assert status == 200
            assert f"job_{number:04d}".encode() in body
        return took

    with ThreadPoolExecutor(N_CLIENTS) as clients:
        return sorted(ms for own in clients.map(one, range(N_CLIENTS)) for ms in own)


SCREENS = (
    "/job?file=job.yaml",
    "/compare?file=predict-0000.json&file=predict-0001.json",
    "/picture?file=predict-0002.json",
    "/recording?file=steps.csv",
    "/start?command=search&job=job.yaml",
    "/runs",
)
PATHS = (
    "/",
    "/answer",
    "/job",
    "/job/check",
    "/compare",
    "/run",
    "/runs",
    "/start",
    "/recording",
    "/picture",
    "/download",
)
PATHS += (
    "/open",
    "/files",
    "/pin",
    "/rows",
    "/static/..%2f..%2fetc/passwd",
    "/nowhere",
    "//",
    "/%00",
    "/\u00e9".encode().decode("latin-1"),
)


def malformed(draw: random.Random) -> bytes:
    """A request that no browser sends."""
    noise = bytes(draw.randrange(256) for _ in range(draw.randrange(200)))
    words = draw.choice(
        ("../../etc/passwd", "%2e%2e%2f", "a" * 3000, "%00", "predict-0000.json%0d%0aX: y", "%ff%fe", "-1", "[]")
    )
    query = draw.choice(
        ("", f"?file={words}", f"?file=predict-0000.json&file={words}", f"?command={words}&job=x", f"?name={words}")
    )
    method = draw.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "\x01", "G" * 500))
    head = f"{method} {draw.choice(PATHS)}{query} HTTP/1.1\r\n".encode("latin-1")
    length = draw.choice((str(len(noise)), "-5", "x", "99999999999", "0"))
    own = "Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:1\r\nConnection: close\r\n"
    fields = f"{own}Content-Length: {length}\r\nCookie: ".encode()
    kind = draw.randrange(4)
    if kind == 0:
        return noise + b"\r\n\r\n"
    return head + fields + b"COOKIE\r\n\r\n" + noise


def hostile(server: Server) -> Counter[str]:
    """How many malformed requests got which kind of answer; the server must answer well afterwards."""
    draw, found = random.Random(0), Counter()
    for _ in range(N_MALFORMED):
        request = malformed(draw).replace(b"COOKIE", server.headers["Cookie"].encode())
        with socket.create_connection(("127.0.0.1", server.port), timeout=2) as sent:
            try:
                sent.sendall(request)
                sent.shutdown(socket.SHUT_WR)
                answer = sent.recv(65536)
            except OSError:
                answer = b""
        status = answer.split(b" ", 2)[1][:1].decode() if answer.startswith(b"HTTP/") else "closed"
        found[status + "xx" if status.isdecimal() else status] += 1
        if status == "5":
            print(request[:200], answer[:400])
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        fill(folder)
        for _ in range(2):  # the second start finds compiled Python files
            with served(folder) as server:
                status, body = server.get("/")
                assert status == 200
                assert b"1,000 reports" in body
                first_s, _ = server.used()
        with served(folder) as server:
            took = load(server)
            for screen in SCREENS:
                assert server.get(screen)[0] == 200, screen
            try:
                answers = hostile(server)
            except (OSError, HTTPException) as error:
                raise SystemExit(f"the server has left: {error}") from error
            assert server.get("/")[0] == 200
            _, memory_mb = server.used()
    figures = (first_s, memory_mb, took[int(0.95 * len(took))])
    for (name, bar), figure in zip(BARS.items(), figures, strict=True):
        print(f"{name}: {figure:.3g} (bar {bar:g})")
    print(f"{len(took)} answers to {N_CLIENTS} clients, none lost; median {took[len(took) // 2]:.0f} ms")
    print(f"{N_MALFORMED} malformed requests: {dict(answers)}; answers after them as before")


if __name__ == "__main__":
    main()
