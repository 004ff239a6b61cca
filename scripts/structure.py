"""Checks how the code is built, and prints every violation as file:line: `python scripts/structure.py` from anywhere.

- at most 15 Python files in a folder;
- no modules that import each other in a circle, imports inside functions and behind TYPE_CHECKING counted;
- at most 60 lines of code in a function, without its docstring, comments and blank lines;
- a docstring and complete type annotations on everything public in `prism_jax` and `inference`;
- no report class that copies a domain class (`copies`); `--copies` prints these alone, and how many there are.

`--root FOLDER` reads another checkout.

Dunder methods, nested functions and bodies of `...` need no docstring, nor do methods that a base class documents.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("prism_jax", "inference", "experiments", "benchmarks", "tests")
PUBLIC = ("prism_jax", "inference")
MOST_FILES, MOST_LINES = 15, 60
SMALLEST_COPY, COPIED = 3, 0.8  # fields of a domain class, and the share of them that a copy has
Function = ast.FunctionDef | ast.AsyncFunctionDef
KNOWN: frozenset[str] = frozenset()  # `path:name` of what is wrong and will be mended; nothing may be added


@dataclass(frozen=True, order=True)
class Violation:
    """One thing that is not as it should be.

    Attributes:
        path: of the file or folder, below the root.
        line: in the file; 0 for a folder.
        name: of the function, class or module; empty for a folder.
        text: what is wrong.
    """

    path: str
    line: int
    name: str
    text: str

    @property
    def key(self) -> str:
        """`path:name`, which stays while lines move."""
        return f"{self.path}:{self.name}"

    def __str__(self) -> str:
        """`path:line: name: what is wrong`."""
        return f"{self.path}:{self.line}: {f'{self.name}: ' if self.name else ''}{self.text}"


@dataclass(frozen=True)
class Module:
    """One Python file.

    Attributes:
        path: below the root, with slashes.
        text: its source.
    """

    path: str
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def parts(self) -> tuple[str, ...]:
        """Its dotted name, in parts."""
        parts = Path(self.path).with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def package(self) -> tuple[str, ...]:
        """The package that relative imports start from."""
        return tuple(Path(self.path).parts[:-1])


def modules(root: Path, folders: Sequence[str] = FOLDERS) -> list[Module]:
    """All Python files below `folders`, by path."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.py"))
    return [Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def crowded(found: Sequence[Module]) -> Iterator[Violation]:
    """Folders with too many files."""
    for folder, n in sorted(Counter(Path(module.path).parent.as_posix() for module in found).items()):
        if n > MOST_FILES:
            yield Violation(folder, 0, "", f"{n} Python files, more than {MOST_FILES}")


def circles(found: Sequence[Module]) -> Iterator[Violation]:
    """Groups of modules of which each reaches every other by imports, one violation per group."""
    known = {module.parts: module.path for module in found}
    graph = {module.path: dict(_imports(module, known)) for module in found}
    for group in _components({path: list(edges) for path, edges in graph.items()}):
        first, *rest = sorted(group)
        line = min(line for path, line in graph[first].items() if path in group)
        yield Violation(first, line, "imports", f"in a circle with {', '.join(rest) or 'itself'}")


def _imports(module: Module, known: dict[tuple[str, ...], str]) -> Iterator[tuple[str, int]]:
    """Files that a module imports, and where."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _resolved([tuple(alias.name.split("."))], known, module, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            level = node.level - 1
            start = module.package[: len(module.package) - level] if node.level else ()
            base = (*start, *(node.module.split(".") if node.module else ()))
            for alias in node.names:  # a module of the package, or else a name in it
                yield from _resolved([(*base, alias.name), base], known, module, node.lineno)


def _resolved(
    names: Sequence[tuple[str, ...]], known: dict[tuple[str, ...], str], module: Module, line: int
) -> Iterator[tuple[str, int]]:
    """The first of `names` that is a file here; scripts also find the files of their own folder."""
    for name in names:
        for path in (known.get(name), known.get((*module.package, *name))):
            if path is not None:
                yield path, line
                return


def _components(graph: dict[str, list[str]]) -> list[set[str]]:
    """Strongly connected groups of more than one node, or of one that points to itself."""
    after = {node: _reached(node, graph) for node in graph}
    groups, seen = [], set()
    for node in graph:
        if node not in seen and node in after[node]:
            group = {other for other in after[node] if node in after[other]}
            seen |= group
            groups.append(group)
    return groups


def _reached(start: str, graph: dict[str, list[str]]) -> set[str]:
    """Nodes to which a path of at least one edge leads."""
    seen: set[str] = set()
    stack = list(graph[start])
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += graph[node]
    return seen


def long_functions(module: Module) -> Iterator[Violation]:
    """Functions and methods, nested ones too, with too many lines of code."""
    blank = {n for n, line in enumerate(module.text.splitlines(), 1) if not line.strip() or line.lstrip()[0] == "#"}
    for name, node in _functions(module.tree):
        lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1)) - blank
        if _documented(node):
            words = node.body[0]
            lines -= set(range(words.lineno, (words.end_lineno or words.lineno) + 1))
        if len(lines) > MOST_LINES:
            yield Violation(module.path, node.lineno, name, f"{len(lines)} lines of code, more than {MOST_LINES}")


def _functions(tree: ast.AST, front: str = "") -> Iterator[tuple[str, Function]]:
    """All functions below a node with their dotted names."""
    for node in ast.iter_child_nodes(tree):
        inner = front
        if isinstance(node, Function | ast.ClassDef):
            inner = f"{front}{node.name}."
        if isinstance(node, Function):
            yield inner[:-1], node
        yield from _functions(node, inner)


def undescribed(found: Sequence[Module]) -> Iterator[Violation]:
    """Public classes, functions and methods without a docstring or with incomplete annotations."""
    declared = _declared(found)
    for module in found:
        if module.parts[0] in PUBLIC:
            yield from _undescribed_in(module.path, module.tree.body, declared, ())


def _declared(found: Sequence[Module]) -> dict[str, tuple[set[str], set[str]]]:
    """Name of a class -> the methods that it documents, and the names of its bases."""
    declared: dict[str, tuple[set[str], set[str]]] = {}
    for module in found:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                methods, bases = declared.setdefault(node.name, (set(), set()))
                methods |= {each.name for each in node.body if isinstance(each, Function) and _documented(each)}
                bases |= {_last_name(base) for base in node.bases}
    return declared


def _undescribed_in(
    path: str,
    body: Sequence[ast.stmt],
    declared: dict[str, tuple[set[str], set[str]]],
    inside: tuple[ast.ClassDef, ...],
) -> Iterator[Violation]:
    front = "".join(f"{each.name}." for each in inside)
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _undescribed_in(path, [*node.body, *node.orelse], declared, inside)
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        name = front + node.name
        if isinstance(node, ast.ClassDef):
            if not _documented(node):
                yield Violation(path, node.lineno, name, "no docstring")
            yield from _undescribed_in(path, node.body, declared, (*inside, node))
            continue
        overrides = inside and any(node.name in _inherited(_last_name(base), declared) for base in inside[-1].bases)
        if not (_documented(node) or overrides or _is_stub(node) or _is_variant(node)):
            yield Violation(path, node.lineno, name, "no docstring")
        if missing := _unannotated(node, method=bool(inside)):
            yield Violation(path, node.lineno, name, f"no type of {', '.join(missing)}")


def _inherited(
    name: str, declared: dict[str, tuple[set[str], set[str]]], seen: frozenset[str] = frozenset()
) -> set[str]:
    """Methods that a class or any of its bases documents."""
    if name not in declared or name in seen:
        return set()
    methods, bases = declared[name]
    return methods.union(*(_inherited(base, declared, seen | {name}) for base in bases))


def _last_name(base: ast.expr) -> str:
    """`Protocol` of `typing.Protocol[T]`."""
    while isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _documented(node: Function | ast.ClassDef) -> bool:
    return ast.get_docstring(node) is not None


def _is_stub(node: Function) -> bool:
    """Whether the body is `...`."""
    (*before, last) = node.body
    return (
        not before and isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...
    )


def _is_variant(node: Function) -> bool:
    """Whether it is a setter or an overload, which the getter or the function itself describes."""
    return any(_last_name(each) in ("setter", "overload") for each in node.decorator_list)


def _unannotated(node: Function, *, method: bool) -> list[str]:
    """Arguments without a type, and the result."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    if method and not any(_last_name(each) == "staticmethod" for each in node.decorator_list):
        arguments = arguments[1:]
    arguments += node.args.kwonlyargs
    arguments += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
    missing = [each.arg for each in arguments if each.annotation is None]
    return missing + (["the result"] if node.returns is None else [])


@dataclass(frozen=True)
class Fields:
    """A dataclass or `eqx.Module`: where it stands, and the fields that it adds to its bases, as JSON names them."""

    path: str
    line: int
    name: str
    fields: frozenset[str]

    @property
    def of_report(self) -> bool:
        """Whether it is defined in a module of reports."""
        return "report/types/" in self.path or self.path.endswith("/report.py")


def copies(found: Sequence[Module]) -> Iterator[Violation]:
    """Report classes with at least `COPIED` of the fields of a domain class, which make half of their own fields at least.

    Notes:
        Classes of report modules (`report/types/**`, `report.py`) are held against all others of at least `SMALLEST_COPY` fields.
        Fields are compared by name, by that of `Key` where there is one; a base's fields are no copy. Without the half, a report
        of 31 fields that names tp, pp and dp would be a copy of any class of these three.
    """
    classes = [one for module in found if module.parts[0] in PUBLIC for one in _dataclasses(module)]
    domain = [one for one in classes if not one.of_report and len(one.fields) >= SMALLEST_COPY]
    for own in (one for one in classes if one.of_report):
        alike = [(len(own.fields & other.fields), other) for other in domain]
        copied = [(n, other) for n, other in alike if n >= COPIED * len(other.fields) and 2 * n >= len(own.fields)]
        if copied:
            n, other = max(copied, key=lambda pair: pair[0])
            text = f"copies {n} of {len(other.fields)} fields of {other.name} in {other.path}:{other.line}"
            yield Violation(own.path, own.line, own.name, text)


def _dataclasses(module: Module) -> Iterator[Fields]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        decorators = {_last_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}
        if "dataclass" in decorators or any(_last_name(base) in ("Module", "StrictModule") for base in node.bases):
            stated = (
                each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )
            names = (_key(each) for each in stated if _last_name(each.annotation) != "ClassVar")
            yield Fields(module.path, node.lineno, node.name, frozenset(names))


def _key(stated: ast.AnnAssign) -> str:
    """Name of a field in JSON."""
    for node in ast.walk(stated.annotation):
        if isinstance(node, ast.Call) and _last_name(node.func) == "Key" and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
    assert isinstance(stated.target, ast.Name)
    return stated.target.id


def violations(root: Path = ROOT) -> list[Violation]:
    """Everything that is not as it should be, in order of files and lines."""
    found = modules(root)
    long = [each for module in found for each in long_functions(module)]
    return sorted([*crowded(found), *circles(found), *long, *undescribed(found), *copies(found)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 1 where anything but `KNOWN` is wrong, or where something in `KNOWN` is right by now."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--copies", action="store_true", help="print report classes that copy a domain class, and their number"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout; this one if not given")
    asked = parser.parse_args(arguments)
    if asked.copies:
        copied = sorted(copies(modules(asked.root, PUBLIC)))
        print(*copied, f"{len(copied)} copies", sep="\n")
        return int(bool(copied))
    found = violations(asked.root)
    new = [each for each in found if each.key not in KNOWN]
    done = sorted(KNOWN - {each.key for each in found})
    for each in new:
        print(each)
    for key in done:
        print(f"{key}: is right by now; take it out of KNOWN in scripts/structure.py")
    return int(bool(new or done))


if __name__ == "__main__":
    sys.exit(main())
