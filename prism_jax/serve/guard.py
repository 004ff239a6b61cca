"""Who may ask the server what: hosts, the token, the cookie, the origin, the size of bodies, and the policy of every answer.

The server listens on the loopback interface, where other users of the machine and pages of other sites can reach it too. A
request is answered if it names a loopback host (a page of another site whose name was bound to this address does not), if it
has the cookie that the token was exchanged for (other users do not), and, where it changes something, if the browser says that
it comes from the page itself.
"""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from ..core.units import format_bytes
from ..shell.streams import VERBOSITY, say

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

HOSTS = ("127.0.0.1", "localhost")
MOST_BODY = 64 * 2**20  # bytes
STATIC = "/static/"
POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "img")),
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {  # without a referrer browsers send no origin either
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
READING = ("GET", "HEAD")


class Keys:
    """The token of the printed link, good once, and the cookie that it is exchanged for.

    Args:
        spent: called with the next token when one was used, to print the link for another browser.
    """

    def __init__(self, spent: Callable[[str], None] = lambda _: None) -> None:
        self._lock, self._spent = Lock(), spent
        self.token, self.cookie = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.name = f"prism-jax-{secrets.token_hex(4)}"  # servers on other ports of this host see the cookie too

    def takes(self, token: str) -> bool:
        """Whether `token` is the one that is good; it is not any more then."""
        with self._lock:
            is_good = secrets.compare_digest(token.encode(), self.token.encode())
            if is_good:
                self.token = secrets.token_urlsafe(24)
        if is_good:
            self._spent(self.token)
        return is_good

    def knows(self, cookies: str) -> bool:
        """Whether a header of cookies holds ours."""
        pairs = (one.strip().partition("=") for one in cookies.split(";"))
        return any(
            name == self.name and secrets.compare_digest(value.encode(), self.cookie.encode())
            for name, _, value in pairs
        )

    @property
    def header(self) -> str:
        """Header that sets the cookie."""
        return f"{self.name}={self.cookie}; Path=/; HttpOnly; SameSite=Strict"


class RefusedError(Exception):
    """A request that is not answered: the status of HTTP, and why in a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Guard:
    """ASGI application that refuses what the inner one must not see, and states the policy on all answers."""

    def __init__(self, app: Any, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one connection, as ASGI calls it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket: there is none
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in added if one[0] not in own)]
            await send(message)

        try:
            if (token := self._token(scope, headers)) is not None:
                await _welcome(sent, self._keys, token, self._keys.knows(headers.get("cookie", "")))
                return
            _check(scope, headers, self._keys)
            await self._app(scope, _bounded(receive), sent)
        except RefusedError as refusal:
            await refused(sent, refusal)
        except Exception as error:  # it is answered by then; the server goes on
            say(f"error: {scope['method']} {scope['path'][:100]}: {bug(error)} (with --debug: where)", always=True)
            for line in traceback.format_exc().splitlines() if VERBOSITY.debug else ():
                say(line, always=True)

    def _token(self, scope: Scope, headers: MutableMapping[str, str]) -> str | None:
        """The token of a request that has one."""
        if scope["path"] != "/" or scope["method"] != "GET" or b"token=" not in scope["query_string"]:
            return None
        _check_host(headers)
        return (parse_qs(scope["query_string"].decode("latin-1")).get("token") or [""])[0]


def _check(scope: Scope, headers: MutableMapping[str, str], keys: Keys) -> None:
    """Refuses a request of another host, without our cookie, of another origin, or with too large a body."""
    _check_host(headers)
    if scope["path"].startswith(STATIC) and scope["method"] in READING:
        return
    if not keys.knows(headers.get("cookie", "")):
        raise RefusedError(403, "Open the link that prism-jax serve printed: this browser has not shown its token.")
    if scope["method"] not in READING and headers.get("origin") != f"http://{headers['host']}":
        raise RefusedError(403, "This request does not come from the page itself.")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise RefusedError(403, "This request comes from another site.")
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise RefusedError(400, "The length of the body is not a number.")
    if int(length) > MOST_BODY:
        raise _too_large()


def _check_host(headers: MutableMapping[str, str]) -> None:
    try:
        parts = urlsplit(f"//{headers.get('host', '')}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        name = None
    if name not in HOSTS:
        raise RefusedError(421, f"This server answers for {' and '.join(HOSTS)} alone.")


def _too_large() -> RefusedError:
    return RefusedError(413, f"Larger than {format_bytes(MOST_BODY)}. Put the file into the folder that is served.")


def _bounded(receive: Receive) -> Receive:
    """`receive`, which refuses a body that grows beyond the limit whatever its header says."""
    n_bytes = 0

    async def received() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > MOST_BODY:
            raise _too_large()
        return message

    return received


async def _welcome(send: Send, keys: Keys, token: str, is_known: bool) -> None:
    """Exchanges the token for the cookie, and shows the folder without the token in the address; a known browser needs none."""
    headers = [(b"location", b"/")]
    if not is_known:
        if not keys.takes(token):
            raise RefusedError(403, "This link was used before. prism-jax serve has printed the next one.")
        headers.append((b"set-cookie", keys.header.encode()))
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def bug(error: Exception) -> str:
    """An error that no input should cause, in words."""
    said = f": {error}" if str(error) else ""
    return f"{type(error).__name__}{said}. This is a bug in prism-jax or a fault of the machine."


async def refused(send: Send, refusal: RefusedError) -> None:
    """Sends a refusal as plain text."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.why.encode()})
