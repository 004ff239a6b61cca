"""Moves the fragments of `changes/` into CHANGELOG.md, under a new version; `changes/README.md` says how."""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "fixed", "removed")
UNRELEASED = "## [Unreleased]\n"


def fragments(folder: Path) -> dict[str, list[Path]]:
    """Kind -> its fragments, in the order of their names."""
    return {kind: sorted(folder.glob(f"*.{kind}.md")) for kind in KINDS}


def section(found: dict[str, list[Path]]) -> str:
    """Text of the fragments under headings of their kinds; kinds without any are left out."""
    texts = {kind: [file.read_text(encoding="utf-8").strip() for file in files] for kind, files in found.items()}
    return "\n".join(f"### {kind.capitalize()}\n" + "\n".join(lines) + "\n" for kind, lines in texts.items() if lines)


def released(log: str, news: str, version: str, date: str) -> str:
    """The change log with everything that is unreleased, and the fragments, under `version`.

    Raises:
        ValueError: there is no heading for what is unreleased, or the version is there already.
    """
    if UNRELEASED not in log or f"## [{version}]" in log:
        raise ValueError(f"CHANGELOG.md: no line {UNRELEASED.strip()!r}, or {version} is there already")
    before, after = log.split(UNRELEASED, 1)
    return f"{before}{UNRELEASED}\n## [{version}] - {date}\n\n{news}{after}"


def main() -> None:
    """Does it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--date", required=True, help="of the release, YYYY-MM-DD")
    given = parser.parse_args()
    found, log = fragments(ROOT / "changes"), ROOT / "CHANGELOG.md"
    text = released(log.read_text(encoding="utf-8"), section(found), given.version, given.date)
    log.write_text(text, encoding="utf-8")
    for files in found.values():
        for file in files:
            file.unlink()


if __name__ == "__main__":
    main()
