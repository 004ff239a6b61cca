"""What the server refuses: other hosts, browsers without the token, other origins, large bodies, paths that lead out of DIR."""

import asyncio
from pathlib import Path

import pytest

from prism_jax.serve import files, folder_screen, guard
from prism_jax.serve.guard import MOST_BODY, POLICY
from tests.prism_jax.serve.client import HOST, Client

OTHER_HOSTS = [
    "evil.example",
    "evil.example:8765",
    "127.0.0.1.evil.example",
    "[::1]:8765",
    "",
    "127.0.0.1:x",
    "[",
    None,
]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def test_every_answer_states_the_policy(client: Client):
    for answer in (client.get("/"), client.get("/nowhere"), client.ask("GET", "/", headers={"cookie": None})):
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY


def test_a_token_is_exchanged_once_for_a_strict_cookie(client: Client):
    token = client.keys.token
    answer = client.ask("GET", f"/?token={token}", headers={"cookie": None})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie, *said = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(said)
    assert client.ask("GET", "/", headers={"cookie": cookie}).status == 200
    assert client.ask("GET", f"/?token={token}", headers={"cookie": None}).status == 403


@pytest.mark.parametrize("cookie", [None, "", "a=b", "prism-jax-00000000=x", "; ; =", "\xff=\xfe"])
def test_a_browser_without_the_cookie_is_refused(client: Client, cookie: str | None):
    assert client.ask("GET", "/", headers={"cookie": cookie}).status == 403


@pytest.mark.parametrize("token", ["", "x", "%00", "%FF", "é"])
def test_a_wrong_token_is_refused(client: Client, token: str):
    assert client.ask("GET", f"/?token={token}", headers={"cookie": None}).status == 403


@pytest.mark.parametrize("host", OTHER_HOSTS)
def test_other_hosts_are_refused_even_with_the_cookie_or_the_token(client: Client, host: str | None):
    assert client.ask("GET", "/", headers={"host": host}).status == 421
    assert client.ask("GET", f"/?token={client.keys.token}", headers={"host": host}).status == 421


def test_another_port_of_this_machine_is_allowed_for_tunnels(client: Client):
    assert client.ask("GET", "/", headers={"host": "localhost:9999"}).status == 200


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "https://127.0.0.1:8765", "http://127.0.0.1:1"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_what_changes_something_must_come_from_the_page(client: Client, origin: str | None, method: str):
    assert client.ask(method, "/files?name=a.txt", b"x", {"origin": origin}).status == 403
    assert not list(client.site.folder.glob("a*"))


def test_a_request_of_another_site_is_refused(client: Client):
    assert client.ask("GET", "/", headers={"sec-fetch-site": "cross-site"}).status == 403
    assert client.ask("GET", "/", headers={"sec-fetch-site": "none"}).status == 200


def test_large_bodies_are_refused_before_and_while_they_come(client: Client, monkeypatch: pytest.MonkeyPatch):
    assert client.ask("PUT", "/files?name=a", b"x", {"content-length": str(MOST_BODY + 1)}).status == 413
    assert client.ask("PUT", "/files?name=a", b"x", {"content-length": "-1"}).status == 400
    monkeypatch.setattr(guard, "MOST_BODY", 100_000)
    assert client.ask("PUT", "/files?name=a", b"x" * 200_000, {"content-length": None}).status == 413
    assert client.ask("POST", "/pin", b"x" * 2_000_000, {"content-length": None}).status == 413
    assert [path.name for path in client.site.folder.iterdir() if not path.name.startswith(".")] == []


OUTSIDE = [
    "../secret.json",
    "a/../../secret.json",
    "/etc/passwd",
    "..",
    "",
    "out/secret.json",
    ".prism-jax/served.lock",
    "a\0b",
    "x" * 5000,
    "..\\secret.json",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_outside_are_refused(tmp_path: Path, name: str):
    served = tmp_path / "served"
    served.mkdir()
    (tmp_path / "secret.json").write_text('{"schema": "prism-jax/prediction/1"}')
    (served / "out").symlink_to(tmp_path)
    client = Client(served)
    for path in ("/open", "/picture"):
        answer = client.get(path, file=name)
        assert answer.status == 400, path
        assert "secret" not in answer.text.replace(name, "")
    assert client.post("/pin", {"file": name, "pinned": "yes"}).status == 400


def test_a_file_that_comes_in_gets_a_plain_name_and_replaces_nothing(client: Client):
    names = ["a.log", "../../a.log", "a.log", "C:\\x\\a.log", "b c\n.yaml", ".hidden"]
    for name in names:
        assert client.put("/files", b"content", name=name).status == 201
    found = sorted(path.name for path in client.site.folder.iterdir())
    assert found == ["a-2.log", "a-3.log", "a-4.log", "a.log", "b_c_.yaml", "hidden"]
    assert client.put("/files", b"content", name="..").status == 400


def test_a_name_as_long_as_the_disk_takes(client: Client):
    assert client.put("/files", b"content", name="é" * 400 + ".log").status in (201, 400)


def test_there_are_no_web_sockets(client: Client):

    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    asyncio.run(client.app({"type": "websocket", "path": "/"}, None, send))  # pyright: ignore[reportArgumentType]
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_the_cookie_of_another_server_does_not_open_this_one(tmp_path: Path):
    one, other = Client(tmp_path), Client(tmp_path)
    cookie = f"{one.keys.name}={one.keys.cookie}"
    assert other.ask("GET", "/", headers={"cookie": cookie}).status == 403
    assert HOST.startswith("127.0.0.1")


def test_a_known_browser_may_open_a_link_again(client: Client):
    token = client.keys.token
    assert client.ask("GET", "/?token=used-before").status == 303
    assert client.keys.token == token  # it is still good for another one


def test_a_browser_that_goes_away_leaves_no_traceback_and_no_file(client: Client, capsys: pytest.CaptureFixture[str]):
    for method, target in (("PUT", "/files?name=a.log"), ("POST", "/runs")):
        assert client.ask(method, target, b"abc", goes_away=True).status == 400
    assert not any(path.is_file() for path in client.site.folder.rglob("*"))
    assert capsys.readouterr().err == ""


def test_a_bug_is_told_in_a_line_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(folder_screen, "ROUTES", (folder_screen.Route("/", lambda request: request.nothing),))
    answer = Client(tmp_path).get("/")
    assert answer.status == 500
    assert "This is a bug in prism-jax" in answer.text
    assert answer.headers["content-security-policy"] == POLICY
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: GET /: AttributeError")


def test_two_files_of_one_name_that_come_at_once_are_both_kept(client: Client):
    """The second comes while the first is on its way."""
    with_first = files.free(client.site, "a.log")
    files.COMING.add(with_first)
    try:
        assert client.put("/files", b"second", name="a.log").text == "/open?file=a-2.log"
    finally:
        files.COMING.discard(with_first)
    assert client.put("/files", b"first", name="a.log").text == "/open?file=a.log"
    assert (client.site.folder / "a-2.log").read_bytes() == b"second"
