"""Reports in HTML, opened in Chromium without a network: nothing is loaded, run or too wide; axe-core finds nothing serious.

Run by `make test-browser`; needs Chromium (`apt install chromium`) and the extra `browser`.
"""

from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.page import Bar, Bars, Card, Code, Facts, Group, Note, Page, Table
from prism_jax.core.page_html import Sheet, sheets_html
from prism_jax.core.report import Report
from tests.prism_jax.shell.test_reports import every
from tests.support.report_cases import CASES

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytestmark = pytest.mark.slow
SIZES = (375, 1440)
HOSTILE = "<script>document.title='owned'</script>\"><img src=x onerror=\"document.title='owned'\">'\u202edlrow"


def faults(browser: Any, path: Path, scheme: str, width: int) -> list[str]:
    """What a reader, or a reader with a screen reader, would run into."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page, found = context.new_page(), []
    page.on("console", lambda message: found.append(message.text))
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on(
        "request", lambda request: found.extend([request.url] if not request.url.startswith(("file:", "data:")) else [])
    )
    page.goto(path.as_uri())
    if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
        found.append(f"wider than {width}")
    if page.title() == "owned":
        found.append("a name was run")
    violations = axe.Axe().run(page).response["violations"]
    found += [f"axe: {one['id']} ({one['impact']})" for one in violations if one["impact"] in ("serious", "critical")]
    context.close()
    return found


@every
def test_every_kind_of_report_opens_without_a_fault(report: Report, browser: Any, tmp_path: Path):
    path = tmp_path / "report.html"
    path.write_text(report.to_html(), encoding="utf-8")
    assert {
        (scheme, width): faults(browser, path, scheme, width) for scheme in ("light", "dark") for width in SIZES
    } == {(scheme, width): [] for scheme in ("light", "dark") for width in SIZES}


def test_hostile_names_stay_names(browser: Any, tmp_path: Path):
    card = Card(
        HOSTILE,
        HOSTILE,
        "bad",
        facts={HOSTILE: HOSTILE},
        evidence=HOSTILE,
        assumptions=(HOSTILE,),
        next_step=HOSTILE,
    )
    blocks = [
        Note(HOSTILE),
        Facts(HOSTILE, {HOSTILE: HOSTILE}),
        Table(HOSTILE, [HOSTILE, "n"], [[HOSTILE * 9, "1"]]),
        Bars(HOSTILE, [Bar(HOSTILE, HOSTILE, 0.5)]),
        Code(HOSTILE, HOSTILE),
        Group(HOSTILE, [Note(HOSTILE)]),
    ]
    data = {"schema": "x", "record": {"inputs": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}, "command": HOSTILE}}
    path = tmp_path / "hostile.html"
    path.write_text(sheets_html([Sheet(HOSTILE, Page(card, blocks), None, data)]), encoding="utf-8")
    assert [faults(browser, path, "light", width) for width in SIZES] == [[], []]


def test_two_reports_stand_next_to_each_other_on_wide_screens_only(browser: Any, tmp_path: Path):
    card = Card("a job", "Fits.", "good", facts={"step time": "6.5 s"}, evidence="none")
    sheet = Sheet("prediction", Page(card, [Note("word " * 50)]), None, {"schema": "x"})
    path = tmp_path / "two.html"
    path.write_text(sheets_html([sheet, sheet]), encoding="utf-8")
    tops = {}
    for width in SIZES:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(path.as_uri())
        tops[width] = page.eval_on_selector_all("article", "all => all.map(one => one.getBoundingClientRect().top)")
        page.close()
    assert tops[1440][0] == tops[1440][1]
    assert tops[375][0] < tops[375][1]
    assert set(CASES) >= {"prediction"}
