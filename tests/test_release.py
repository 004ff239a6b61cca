"""What is released: one version everywhere, a wheel of our files alone, a change log that fragments become."""

import re
import subprocess
from pathlib import Path

import pytest

from prism_jax import __version__
from scripts.change_log import KINDS, fragments, released, section
from scripts.release_check import foreign_files

ROOT = Path(__file__).resolve().parent.parent


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_all_files_name_one_version():
    assert re.search(r'^version: "?([\w.]+)"?$', text("CITATION.cff"), re.MULTILINE)[1] == __version__  # pyright: ignore
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_change_fragments_are_named_by_their_kind():
    fragments = [file for file in (ROOT / "changes").glob("*.md") if file.name != "README.md"]
    assert [file.name for file in fragments if file.name.split(".")[1:] not in [[kind, "md"] for kind in KINDS]] == []
    for file in fragments:
        lines = file.read_text(encoding="utf-8").strip().splitlines()
        assert lines, file.name
        assert max(map(len, lines)) <= 160, file.name


@pytest.mark.parametrize("page", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "LICENSE", "Dockerfile"])
def test_what_a_release_needs_is_there(page: str):
    assert text(page).strip()


def test_fragments_become_a_section_of_the_change_log(tmp_path: Path):
    (tmp_path / "b.added.md").write_text("- second\n")
    (tmp_path / "a.added.md").write_text("- first\n")
    (tmp_path / "c.fixed.md").write_text("- third\n")
    news = section(fragments(tmp_path))
    assert news == "### Added\n- first\n- second\n\n### Fixed\n- third\n"
    log = released("# Changelog\n\n## [Unreleased]\n\n### Added\n- old\n", news, "0.3.0", "2027-01-31")
    assert log.split("\n\n")[1:3] == ["## [Unreleased]", "## [0.3.0] - 2027-01-31"]
    assert log.index("- third") < log.index("- old")
    with pytest.raises(ValueError, match="already"):
        released(log, news, "0.3.0", "2027-01-31")


def test_the_packages_hold_our_files_alone():
    """What the wheel is made of; `make release-check` looks at the wheel."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "prism_jax", "inference", "examples"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no git checkout")
    names = [re.sub("^examples/", "prism_jax/_examples/", name) for name in done.stdout.splitlines()]
    assert len(names) > 500
    assert foreign_files(names) == []


def test_foreign_files_are_seen():
    names = ["prism_jax/job/job.py", "tests/x.py", "inference/__pycache__/a.pyc", "prism_jax-1.dist-info/METADATA"]
    assert foreign_files(names) == ["tests/x.py", "inference/__pycache__/a.pyc"]
    assert foreign_files(["prism_jax/core/key.pem"]) == ["prism_jax/core/key.pem"]
    assert foreign_files(["prism_jax/serve/static/a.js", "prism_jax/core/a.js"]) == ["prism_jax/core/a.js"]
