"""Chromium for the tests of pages; skipped where it, or the extra `browser`, is not installed."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

MISSING = "playwright or axe-core is not installed: pip install prism-jax[browser]"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, or a reason to skip."""
    playwright = pytest.importorskip("playwright.sync_api", reason=MISSING)
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()
