"""Regular expressions whose time grows faster than the text they search; run as a module, this file prints them.

Every pattern in a module (compiled, or as a text in a table of a module that imports `re`) searches long texts made of
what it looks for. A search that is linear takes about a millisecond, one that tries every start with every end minutes; it is
interrupted after seconds.
"""

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import inference
import prism_jax

ANCHORED = ("prism_jax.tables.yaml_toml", "prism_jax.workload.hugging_face.config")
"""Modules that ask whether a text as a whole, or from its beginning, is one of theirs."""
LENGTH, LIMIT_S = 50_000, 3.0
PIECES = (
    " ",
    "(",
    "[",
    '"',
    "1",
    "a",
    "A",
    "aA",
    "1.",
    "1x",
    "1x ",
    "a ",
    "(a",
    ") ",
    "; ",
    ".",
    "-",
    "\n",
    "a=1, ",
    "1e",
)
_LITERALS = re.compile(r"(?<![\\\[])[A-Za-z][A-Za-z _:'-]{0,40}")  # words of a pattern
_SPECIAL = re.compile(r"[\\|*+?\[]")


def modules() -> Iterator[ModuleType]:
    """All modules of the package."""
    for package in (prism_jax, inference):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns(module: ModuleType) -> Iterator[re.Pattern[Any]]:
    """Those that stand in a module, in tables too."""
    for name, value in vars(module).items():
        if not name.startswith("__"):
            yield from _inside(value, hasattr(module, "re"), 0)


def _inside(value: object, has_texts: bool, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, str) and has_texts and depth and _SPECIAL.search(value):
        try:
            yield re.compile(value, re.IGNORECASE)
        except re.error:
            return
    elif isinstance(value, (tuple, list, dict)) and depth < 4:
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        for item in inner:
            yield from _inside(item, has_texts, depth + 1)


def texts(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Long texts that begin as the pattern does and go on without an end."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
    words = list(dict.fromkeys(_LITERALS.findall(source)))[:6]
    for start in ("", *words):
        for piece in (*PIECES, *words):
            yield (start + piece * LENGTH)[:LENGTH] + "\x00"
    for word in words:
        for piece in (" ", "(", "[", "1", ": [", ' "', "=1"):
            yield ((word + piece) * LENGTH)[:LENGTH] + "\x00"


def slow_on(pattern: re.Pattern[Any], anchored: bool) -> str:
    """The beginning of a text that a search does not end in; empty if there is none."""
    for text in texts(pattern):
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        content: Any = text if isinstance(pattern.pattern, str) else text.encode()
        try:
            if anchored:
                pattern.match(content)
                pattern.fullmatch(content)
            else:
                for _ in pattern.finditer(content):
                    pass
        except TimeoutError:
            return text[:40]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    return ""


def _stop(number: int, frame: object) -> None:
    raise TimeoutError


def main() -> None:
    """Prints how many patterns there are, and each that is slow."""
    signal.signal(signal.SIGALRM, _stop)
    found = {pattern: module.__name__ for module in modules() for pattern in patterns(module)}
    print(f"{len(found)} patterns")
    for pattern, name in found.items():
        text = slow_on(pattern, name in ANCHORED)
        if text:
            print(f"slow: {name}: {pattern.pattern!r} on {text!r}...")


if __name__ == "__main__":
    main()
