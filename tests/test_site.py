"""The documentation site: it builds without a warning, its links lead somewhere, and nothing public is left unsaid."""

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.reference import commands_page, field_words, public_names, report_types
from prism_jax.job.reference import job_fields
from prism_jax.show.reports import REPORTS

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


def test_every_public_name_is_documented():
    undocumented = [name for name, value in public_names().items() if not inspect.getdoc(value)]
    for name, value in public_names().items():
        if inspect.isclass(value):
            members = (key for key, of in vars(value).items() if inspect.isroutine(of) or isinstance(of, property))
            public = [key for key in members if not key.startswith("_")]
            undocumented += [f"{name}.{key}" for key in public if not inspect.getdoc(getattr(value, key))]
    assert undocumented == []


def test_every_option_is_documented():
    lines = [line for line in commands_page().splitlines() if line.startswith("* `")]
    assert len(lines) > 400
    assert [line for line in lines if not re.match(r"\* `[^`]+`(, `[^`]+`)*: +\w", line)] == []


def test_every_field_of_a_job_file_is_documented():
    assert [field.name for field in job_fields() if not field.about] == []


def test_every_field_of_a_report_is_documented():
    """By its class, by the unit in its name, or in docs/report_fields.toml."""
    types = [found for kind in REPORTS for found in report_types(kind)]
    assert [f"{name}.{field}" for name, _, said in types for field, text in said.items() if not text] == []
    assert [name for name, body, _ in types if not body["description"]] == []
    fields = {key for name, _, said in types for field in said for key in (field, f"{name}.{field}")}
    assert set(field_words()) - fields == set()
