"""A client that calls the application as a server of ASGI does, without a socket: tests see exactly what is answered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from prism_jax.core.errors import DataError
from prism_jax.serve.app import make_app
from prism_jax.serve.guard import Keys
from prism_jax.serve.results import Results
from prism_jax.serve.runs import CommandRun
from prism_jax.serve.site import Site

HOST, ROOT = "127.0.0.1:8765", Path(__file__).resolve().parents[3]
JOB = """
name: small
model: {preset: llama-2-7b, n_layers: 2}
cluster: {preset: dgx-a100, n_devices: 8}
plan: {tp: 2, micro_batch: 1, global_batch: 16, seq_len: 1024}
framework: megatron-core
"""


@dataclass(frozen=True)
class Answer:
    """What the application has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


class IdleRuns:
    """Runs that are taken in and never started, for screens that need no worker."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, ...]] = []

    def submit(self, words: Any) -> Any:
        self.submitted.append(tuple(words))
        return self.run(f"{words[0]}-{len(self.submitted)}")

    def runs(self) -> list[Any]:
        return [self.run(f"{words[0]}-{n}") for n, words in enumerate(self.submitted, start=1)]

    def shell_words(self, name: str) -> str:
        return f"prism-jax {' '.join(self.run(name).words)}"

    def run(self, name: str) -> Any:
        number = int(name.rpartition("-")[2]) if name.rpartition("-")[2].isdecimal() else 0
        if not 1 <= number <= len(self.submitted):
            raise DataError(f"run {name}: there is none of this name")
        return CommandRun(name, self.submitted[number - 1], turn=number)

    cancel = resume = run


class Client:
    """A browser that has shown its token.

    Args:
        folder: DIR.
        runs: None: `IdleRuns`.
    """

    def __init__(self, folder: Path, runs: Any = None) -> None:
        self.runs = IdleRuns() if runs is None else runs
        self.keys = Keys()
        self.site = Site(folder, Results(folder), cast(Any, self.runs))
        self.app = make_app(self.site, self.keys)

    def get(self, path: str, **query: str) -> Answer:
        return self.ask("GET", path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, fields: Mapping[str, str | list[str]]) -> Answer:
        return self.ask("POST", path, urlencode(fields, doseq=True).encode())

    def put(self, path: str, body: bytes, **query: str) -> Answer:
        return self.ask("PUT", f"{path}?{urlencode(query)}", body)

    def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        goes_away: bool = False,
    ) -> Answer:
        """One request; a header of None is left out. A browser that goes away does so before its body has ended."""
        stated = {
            "host": HOST,
            "origin": f"http://{HOST}",
            "cookie": f"{self.keys.name}={self.keys.cookie}",
            "content-length": str(len(body)),
            **(headers or {}),
        }
        sent = [(name.encode(), value.encode("latin-1")) for name, value in stated.items() if value is not None]
        parts = urlsplit(target)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": parts.path,
            "raw_path": quote(parts.path).encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": sent,
            "server": ("127.0.0.1", 8765),
            "client": ("127.0.0.1", 1),
        }
        return asyncio.run(_answer(self.app, scope, body, goes_away))


def loads_none_of(modules: set[str], folder: Path, code: str) -> None:
    """Runs code that asks a `client` of a folder in a process of its own, which must load none of these modules."""
    head = (
        f"import sys; from pathlib import Path; from {__name__} import Client; client = Client(Path({str(folder)!r}))\n"
    )
    code = f"{head}{code}\nassert not {modules} & {{*sys.modules}}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CHUNK = 2**16


async def _answer(app: Any, scope: Any, body: bytes, goes_away: bool) -> Answer:
    chunks = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)] or [b""]
    found: dict[str, Any] = {"body": b""}

    async def receive() -> Any:
        if not chunks:
            return {"type": "http.disconnect"}
        own = chunks.pop(0)
        return {"type": "http.request", "body": own, "more_body": goes_away or bool(chunks)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found["status"] = message["status"]
            found["headers"] = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            found["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return Answer(found["status"], found["headers"], found["body"])
