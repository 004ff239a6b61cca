"""`prism-jax serve`: a folder of results as a local page, until Ctrl-C."""

from __future__ import annotations

import getpass
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core.errors import DataError
from ..core.executor import Workers
from ..core.processes import terminated_by_an_exception
from ..core.read_file import only_below, read_text
from ..core.use_case import Argument, Option, use_case
from .results import OWN

if TYPE_CHECKING:
    from .runs import Runs

LOCK = "served.lock"
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
MISSING = "prism-jax serve needs Starlette and uvicorn. Install them: pip install 'prism-jax[page]'"
Port = Annotated[int, Option(metavar="PORT", least=0, most=65535)]


@use_case()
def serve_folder(
    folder: Annotated[str | Path, Argument(metavar="DIR")] = ".",
    *,
    port: Port = 8765,
    workers: Workers = Workers(),
) -> None:
    """Serve a folder of results as a local page in the browser.

    Prints a link that is good once, for this machine alone. Ctrl-C ends it; what runs then goes on at the next start.

    Args:
        folder: folder of reports, jobs, logs and profiles; it is made where there is none.
        port: port of the loopback interface; 0: any that is free.

    Raises:
        DataError: the extra is not installed, the folder cannot be used or is served already, or the port is taken.
    """
    try:
        import uvicorn

        from .app import make_app
    except ImportError:
        raise DataError(MISSING) from None
    from .guard import Keys
    from .results import Results
    from .runs import Runs
    from .site import Site

    own = Path(folder).resolve()
    workers.check()
    with _alone(own) as claim, _listening(port) as listening, only_below(own):
        found_port = listening.getsockname()[1]
        claim(f"http://127.0.0.1:{found_port}")
        keys = Keys(lambda token: _print_link("for another browser", found_port, token))
        print(f"Serving {own}. Ctrl-C ends it.")
        _print_link("open", found_port, keys.token)
        print(f"from another machine, first: ssh -L {found_port}:127.0.0.1:{found_port} {_this_machine()}", flush=True)
        with terminated_by_an_exception(), _told(Runs(own, workers)) as runs:  # SIGTERM saves what runs, too
            app = make_app(Site(own, Results(own), runs), keys)
            config = uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                date_header=False,
                lifespan="off",
                ws="none",
                http="h11",
                timeout_graceful_shutdown=2,
            )
            uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def _told(runs: Runs) -> Iterator[Runs]:
    """Starts runs; at the end tells that they save their work, and which of them go on later."""
    try:
        with runs:
            try:
                yield runs
            finally:
                if _named(runs, "running"):
                    print("Ending. What runs saves its work first, for up to 20 s.", flush=True)
    finally:
        if left := _named(runs, "running", "waiting"):
            print(f"At the next start of prism-jax serve {runs.folder} go on: {', '.join(left)}", flush=True)


def _named(runs: Runs, *states: str) -> list[str]:
    """Runs in these states; none where the folder is gone."""
    with suppress(OSError):
        return [run.name for run in runs.runs() if run.state in states]
    return []


def _this_machine() -> str:
    """User and host, as ssh takes them."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container whose user has no name
        return socket.gethostname()


def _print_link(what: str, port: int, token: str) -> None:
    print(f"{what}: http://127.0.0.1:{port}/?token={token}", flush=True)


@contextmanager
def _alone(folder: Path) -> Iterator[Callable[[str], None]]:
    """Holds the lock of a folder; yields what writes the address of its server into it.

    Raises:
        DataError: the folder cannot be made or written, or another server has it.
    """
    try:
        (folder / OWN).mkdir(parents=True, exist_ok=True)
        if (folder / OWN).is_symlink() or (folder / OWN / LOCK).is_symlink():  # writing would follow it
            raise DataError(f"{folder / OWN}: it, or {LOCK} in it, is a link. Remove it.")
        file = os.open(folder / OWN / LOCK, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise DataError(f"{folder / OWN / LOCK}: is no file. Remove it.")
    except OSError as error:
        raise DataError(f"{folder}: cannot be served: {error.strerror}. Name a folder that you may write.") from None
    try:
        _lock(file, folder)

        def claim(where: str) -> None:
            with suppress(OSError):  # a full disk: it is only told to whoever starts another server
                os.ftruncate(file, 0)
                os.pwrite(file, where.encode(), 0)

        yield claim
    finally:
        os.close(file)


def _lock(file: int, folder: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        where = read_text(folder / OWN / LOCK, 200, "") or "another process"
        raise DataError(
            f"{folder}: is served already, by {where}. Use that page, end it, or name another folder."
        ) from None


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket of the loopback interface.

    Raises:
        DataError: the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
            listening.listen(128)  # a browser that is faster than the start waits
        except OSError as error:
            raise DataError(f"--port {port}: {error.strerror}. Give another port, or 0 for any.") from None
        yield listening
