#!/usr/bin/env python3
"""Count the different error messages that tests expect: `scripts/expected_errors.py [FOLDER] [--list]`, FOLDER a checkout.

A message is a text that a test compares with an error: `match=` of `pytest.raises` or `pytest.warns`, what stands in a
comparison with `str(error)`, `error.value` or standard error, every text of a parametrised case whose argument ends up there,
and every argument of a helper that is called `match`. Names of files at its beginning do not count. Two checkouts compare by
`diff <(scripts/expected_errors.py A --list) <(scripts/expected_errors.py B --list)`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = re.compile(r"^(\w[\w-]*(\\?\.[\w-]+)+(?=\.\*|:|$)|)(\.\*)?")
CHECKS = ("raises", "warns")
SPEAKS_OF_ERRORS = ("error", "raised", "caught", "excinfo", "captured", "err", "said", "message", "stderr")


def main(arguments: list[str]) -> None:
    folders = [one for one in arguments if not one.startswith("-")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((Path(*folders) / "tests").rglob("*.py"))]
    helpers = dict(one for tree in trees for one in with_match(tree))
    found = {FILE_NAME.sub("", text) for tree in trees for text in expected(tree, helpers)}
    print("\n".join(sorted(map(repr, found))) if "--list" in arguments else len(found))


def with_match(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions that take what an error must say, and the place of that argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [one.arg for one in node.args.args]
            if "match" in names:
                yield node.name, names.index("match")


def expected(tree: ast.Module, helpers: dict[str, int]) -> Iterator[str]:
    """Texts that the tests of a file expect in an error."""
    names: set[str] = set()
    for node in ast.walk(tree):
        for part in compared(node):
            yield from texts(part)
            names |= {one.id for one in ast.walk(part) if isinstance(one, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in helpers:
            yield from (text for one in node.args[helpers[node.func.id] :][:1] for text in texts(one))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize") and len(node.args) > 1:
            yield from of_cases(node, names)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id in names for one in targets):
                yield from texts(node.value)


def compared(node: ast.AST) -> Iterator[ast.expr]:
    """What an error is compared with, where `node` is such a comparison."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in CHECKS:
        yield from (one.value for one in node.keywords if one.arg == "match")
    elif isinstance(node, ast.Compare) and any(speaks(one) for one in node.comparators):
        yield node.left


def speaks(node: ast.expr) -> bool:
    """Whether an expression is the text of an error, by its names."""
    return any(
        (one.id if isinstance(one, ast.Name) else one.attr) in SPEAKS_OF_ERRORS
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.Attribute)
    )


def of_cases(call: ast.Call, names: set[str]) -> Iterator[str]:
    """Texts of the arguments of parametrised cases that end up in a comparison."""
    arguments = [one.strip() for text in texts(call.args[0]) for one in text.split(",")]
    cases = call.args[1].elts if isinstance(call.args[1], ast.List | ast.Tuple) else [call.args[1]]
    for case in cases:
        values = case.elts if isinstance(case, ast.Tuple) else case.args if isinstance(case, ast.Call) else [case]
        if len(values) != len(arguments):
            values, arguments = [case], arguments[:1] if len(arguments) == 1 else ["message"]
        for name, value in zip(arguments, values, strict=True):
            if name in names:
                yield from texts(value)


def texts(node: ast.AST) -> Iterator[str]:
    """Constant texts within an expression, f-strings as one."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for one in ast.iter_child_nodes(node):
            yield from texts(one)


if __name__ == "__main__":
    main(sys.argv[1:])
