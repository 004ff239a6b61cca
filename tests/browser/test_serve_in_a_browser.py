"""`prism-jax serve` in Chromium: five journeys with the keyboard alone, axe-core and width on all screens and states.

Run by `make test-browser`; needs Chromium (`apt install chromium`) and the extra `browser`.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.prism_jax.launch.heads import LLAMA, megatron_block, megatron_steps
from tests.prism_jax.serve.client import JOB

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytestmark = pytest.mark.slow
LINK = re.compile(r"http://127\.0\.0\.1:\d+/\?token=\S+")
WAIT_MS = 120_000  # for a command that compiles
SIZES = (360, 1920)


class Server:
    """A server on a folder, as a person starts it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "prism_jax", "serve", str(folder), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdout is not None
        self.link = next(found[0] for line in self.process.stdout if (found := LINK.search(line)))
        self.base = self.link.partition("/?")[0]

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def tab(browser: Any, server: Server, expected: str = "none", **options: Any) -> Iterator[Any]:
    """A page of a browser that has shown its token; errors on the console end the test, but for those with a text."""
    context = browser.new_context(accept_downloads=True, **options)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.base)
    page, faults = context.new_page(), []
    page.set_default_timeout(WAIT_MS)
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(server.link)
    yield page
    context.close()
    assert [text for text in faults if expected not in text] == []


def reach(page: Any, name: str, most: int = 200) -> None:
    """Moves the focus with Tab to the element whose accessible name begins with `name`."""
    script = """() => { const e = document.activeElement; if (!e) return '';
        const label = e.labels && e.labels[0] ? e.labels[0].textContent : '';
        return (e.getAttribute('aria-label') || label || e.textContent || e.value || '').trim(); }"""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(script).startswith(name):
            return
    raise AssertionError(f"Tab does not reach {name!r} on {page.url}")


def press(page: Any, name: str, key: str = "Enter") -> None:
    """Reaches a link or a button, and presses it."""
    reach(page, name)
    page.keyboard.press(key)


SPACE = "tp: [1, 2]\npp: 1\ncp: 1\nmicro_batch: [1, 2]\nschedule: 1f1b\nvirtual_stages: 1\nrecompute: none\nzero_stage: [0, 1]\n"


def until(page: Any, screen: str) -> None:
    """Waits until the browser shows another screen."""
    page.wait_for_url(f"**{screen}*")
    page.wait_for_load_state()


def to_the_start(page: Any) -> None:
    """A new look at the screen, with the focus at its beginning."""
    page.reload()
    page.wait_for_load_state()


def test_a_log_becomes_a_job_and_a_prediction_that_is_downloaded(browser: Any, tmp_path: Path):
    log, folder = tmp_path / "run.log", tmp_path / "results"
    folder.mkdir()
    steps = [2.0 + 0.01 * (n % 7) for n in range(60)]
    log.write_text("\n".join([*megatron_block(LLAMA | {"world_size": 8, "num_layers": 2}), *megatron_steps(steps)]))
    with served(folder) as server, tab(browser, server) as page:
        reach(page, "Add files")
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Space")
        chooser.value.set_files(log)
        until(page, "/job?file=run.log")
        reach(page, "GPU")
        page.keyboard.type("h100-sxm")
        press(page, "Import")
        page.get_by_text("no effect", exact=False).first.wait_for()
        press(page, "Save and predict")
        until(page, "/answer?file=")
        assert page.get_by_role("heading", level=1).inner_text()
        reach(page, "HTML")
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>")
        assert "Content-Security-Policy" in text


def test_a_wrong_field_is_marked_mended_and_predicted(browser: Any, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB)
    with served(tmp_path) as server, tab(browser, server) as page:
        press(page, "job.yaml")
        until(page, "/job?file=job.yaml")
        reach(page, "Job file")
        page.keyboard.press("Control+Home")
        page.keyboard.type("plna: {}\n")
        wrong = page.locator("li.wrong")
        wrong.wait_for()
        assert "plna" in wrong.inner_text()
        page.keyboard.press("Control+Home")
        page.keyboard.press("Shift+ArrowDown")
        page.keyboard.press("Delete")
        wrong.wait_for(state="detached")
        press(page, "Save and predict")
        until(page, "/answer?file=")
        assert page.get_by_role("heading", level=1).inner_text().startswith("small:")


def test_two_saved_answers_are_compared(browser: Any, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB)
    for name, value in (("a.json", "1"), ("b.json", "2")):
        words = ["predict", "job.yaml", "--fast", "--set", f"plan.micro_batch={value}", "--json"]
        found = subprocess.run(
            [sys.executable, "-m", "prism_jax", *words], cwd=tmp_path, capture_output=True, check=False
        )
        (tmp_path / name).write_bytes(found.stdout)
    with served(tmp_path) as server, tab(browser, server) as page:
        first, second = page.locator("input[name=file][type=checkbox]").evaluate_all("all => all.map(one => one.value)")
        press(page, f"choose {first}", "Space")
        press(page, f"choose {second}", "Space")
        press(page, "Compare")
        until(page, "/compare?")
        text = page.locator("main").inner_text()
        assert "micro_batch" in text
        assert "P(" in text


def test_a_search_is_cancelled_resumed_and_its_arguments_copied(browser: Any, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB)
    with served(tmp_path) as server, tab(browser, server) as page:
        press(page, "Run a command")
        until(page, "/start")
        press(page, "search")
        until(page, "command=search")
        reach(page, "JOB")
        page.keyboard.type("job.yaml")
        press(page, "Start search")
        until(page, "/run?name=search")
        press(page, "Cancel")
        page.get_by_role("button", name="Resume").wait_for()
        to_the_start(page)
        press(page, "Resume")
        until(page, "/answer?file=search")
        press(page, "Copy megatron.sh")
        assert "--tensor-model-parallel-size" in page.evaluate("navigator.clipboard.readText()")


def test_a_search_of_a_killed_server_goes_on_when_it_starts_again(browser: Any, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB)
    with served(tmp_path) as server, tab(browser, server) as page:
        page.goto(f"{server.base}/start?command=search&job=job.yaml")
        page.get_by_role("button", name="Start search").click()
        until(page, "/run?name=search")
        page.get_by_text("running").first.wait_for()
        page.goto("about:blank")
        server.kill()
    with served(tmp_path) as server, tab(browser, server) as page:
        page.goto(f"{server.base}/run?name=search-job-1")
        until(page, "/answer?file=search-job-1.json")
    words = [sys.executable, "-m", "prism_jax", "search", "job.yaml", "--json"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, check=True)
    saved, typed = json.loads((tmp_path / "search-job-1.json").read_text()), json.loads(found.stdout)
    assert {key: saved[key] for key in ("best", "top", "gain")} == {key: typed[key] for key in ("best", "top", "gain")}


SLOW_RANK = 5


def recording(path: Path) -> None:
    """A table of steps of eight ranks, of which one is a tenth slower from step 30 on."""
    rows = ["step,rank,duration_s"]
    for step in range(60):
        for rank in range(8):
            slow = 0.1 if rank == SLOW_RANK and step >= 30 else 0.0
            rows.append(f"{step},{rank},{1.0 + slow + 0.002 * ((7 * step + 3 * rank) % 5)}")
    path.write_text("\n".join(rows) + "\n")


def test_a_recording_leads_to_its_slow_rank(browser: Any, tmp_path: Path):
    source, folder = tmp_path / "steps.csv", tmp_path / "results"
    folder.mkdir()
    recording(source)
    with served(folder) as server, tab(browser, server) as page:
        reach(page, "Add files")
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Space")
        chooser.value.set_files(source)
        until(page, "/recording?file=steps.csv")
        assert f"Rank {SLOW_RANK} is slow" in page.locator("main").inner_text()


WORDS = {
    "a.json": ["predict", "job.yaml"],
    "b.json": ["predict", "job.yaml", "--fast", "--set", "plan.micro_batch=2"],
    "search.json": ["search", "job.yaml", "--space", "space.yaml"],
    "sweep.json": ["sweep", "job.yaml", "--set", "plan.micro_batch=1,2"],
    "run.json": ["run", "job.yaml", "--steps", "100000", "--reliability", "llama3-2024", "--deadline", "1d"],
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report of each screen."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "job.yaml").write_text(JOB)
    (folder / "space.yaml").write_text(SPACE)
    (folder / "broken.yaml").write_text("model: nothing-of-this-name\nplan: {tp: 3}\n")
    recording(folder / "steps.csv")
    for name, words in WORDS.items():
        command = [sys.executable, "-m", "prism_jax", *words, "--json"]
        (folder / name).write_bytes(subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout)
    return folder


@pytest.fixture(scope="module")
def server(full: Path) -> Iterator[Server]:
    with served(full) as running:
        yield running


SCREENS = {
    "folder": "/",
    "job": "/job?file=job.yaml",
    "new job": "/job",
    "answer": "/answer?file=a.json",
    "compare": "/compare?file=a.json&file=b.json",
    "form": "/start?command=search&job=job.yaml",
    "search": "/answer?file=search.json",
    "sweep": "/answer?file=sweep.json",
    "recording": "/recording?file=steps.csv",
    "run": "/answer?file=run.json",
    "runs": "/runs",
}
SCHEMES = ("light", "dark")


def faults(page: Any, width: int) -> list[str]:
    """What a reader, or a reader with a screen reader, would run into."""
    page.set_viewport_size({"width": width, "height": 900})
    found = []
    if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
        found.append(f"wider than {width}")
    violations = axe.Axe().run(page).response["violations"]
    return found + [
        f"axe: {one['id']} ({one['impact']}) {one['nodes'][0]['html'][:200]}"
        for one in violations
        if one["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="module")
def tabs(browser: Any, server: Server) -> Iterator[dict[str, Any]]:
    """One page for each colour scheme, which has shown the token."""
    with tab(browser, server, "the server responded with a status of 4", color_scheme="light") as light:
        cookies = light.context.cookies()
        context = browser.new_context(color_scheme="dark")
        context.add_cookies(cookies)
        yield {"light": light, "dark": context.new_page()}
        context.close()


def of_all(tabs: dict[str, Any], address: str) -> dict[tuple[str, int], list[str]]:
    found = {}
    for scheme, page in tabs.items():
        page.goto(address)
        page.wait_for_load_state("networkidle")
        for opened in page.locator("details").all():
            opened.evaluate("one => { one.open = true; }")
        found |= {(scheme, width): faults(page, width) for width in SIZES}
    return {where: own for where, own in found.items() if own}


@pytest.mark.parametrize("screen", SCREENS)
def test_screens_are_without_serious_faults(tabs: dict[str, Any], server: Server, screen: str):
    assert of_all(tabs, server.base + SCREENS[screen]) == {}


def test_states_are_without_serious_faults(tabs: dict[str, Any], server: Server, full: Path):
    page = tabs["light"]
    found: dict[str, Any] = {}
    (full / "job.yaml").write_text(JOB.replace("global_batch: 16", "global_batch: 32"))
    found["stale"] = of_all(tabs, server.base + SCREENS["answer"])
    assert "has changed since this report was made" in page.content()
    (full / "job.yaml").write_text(JOB)
    page.goto(f"{server.base}/start?command=predict&job=broken.yaml")
    page.get_by_role("button", name="Start predict").click()
    until(page, "/run?name=predict-broken")
    page.get_by_text("failed").first.wait_for()
    found["failed"] = of_all(tabs, page.url)
    assert "broken.yaml:1" in page.content()
    page.goto(f"{server.base}/start?command=search&job=job.yaml")
    page.get_by_role("button", name="Start search").click()
    until(page, "/run?name=search")
    found["running"] = of_all(tabs, page.url)
    page.goto(f"{server.base}/job?file=nowhere.yaml")
    found["no such file"] = {(SIZES[0], "light"): faults(page, SIZES[0])}
    for _ in range(20):
        fields = {"command": "predict", "job": "llama3_405b_16384"}
        page.context.request.post(f"{server.base}/runs", form=fields, headers={"origin": server.base}, max_redirects=0)
    page.goto(f"{server.base}/start?command=search&job=job.yaml")
    page.get_by_role("button", name="Start search").click()
    page.get_by_role("alert").wait_for()
    found["refused"] = {(width, "light"): faults(page, width) for width in SIZES}
    assert "16" in page.get_by_role("alert").inner_text()
    assert {state: {where: own for where, own in all_of.items() if own} for state, all_of in found.items()} == {
        state: {} for state in found
    }


def test_an_empty_folder_is_without_serious_faults(browser: Any, tmp_path: Path):
    with served(tmp_path) as server, tab(browser, server) as page:
        assert {width: faults(page, width) for width in SIZES} == {width: [] for width in SIZES}
