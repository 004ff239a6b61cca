"""The documentation site: it builds without a warning, and its local links and anchors lead somewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ("-q", "-n", "-W", "--keep-going", "-b", "html")


class Page(HTMLParser):
    """Targets of links and pictures of a page, and its anchors."""

    def __init__(self, file: Path):
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value and not urlsplit(value).scheme:
                self.targets.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed: pip install prism-jax[docs]")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *BUILD, "docs", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return out


def test_links_and_anchors_of_the_site_lead_somewhere(site: Path):
    pages = {file: Page(file) for file in site.rglob("*.html")}
    broken = []
    for file, page in pages.items():
        for target in page.targets:
            path, anchor = (unquote(part) for part in (urlsplit(target).path, urlsplit(target).fragment))
            to = (file.parent / path).resolve() if path else file
            known = to in pages and (not anchor or anchor in pages[to].anchors)
            if not known and (to in pages or not to.exists()):
                broken.append(f"{file.relative_to(site)}: {target}")
    assert len(pages) > 60
    assert broken == []


def test_pages_load_nothing_from_elsewhere(site: Path):
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//")
    assert [file.name for file in site.rglob("*.html") if loaded.search(file.read_text(encoding="utf-8"))] == []
