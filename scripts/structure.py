"""Measures how far apart things lie, and lists what breaks the rules: `python scripts/structure.py [--root DIR]`.

Rules (each violation is printed as file:line, and the exit code is 1):

- no modules, and no folders, that import each other in a circle (imports inside functions and behind TYPE_CHECKING count);
- a docstring and complete type annotations on everything public in `prism_jax` and `inference`;
- no `**options: Any`: a function states its whole signature.

Measures with a limit (`LIMITS`; exceeding one is a violation): files and folders, floors (the longest chain of imports
between folders), public class names that exist twice, functions with more than 8 parameters, report classes that copy a
domain class, folders per concept. `--measures` prints them; files outside of 40 to 500 lines are listed by `--sizes`.

Dunder methods, nested functions and bodies of `...` need no docstring, nor do methods that a base class documents.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("prism_jax", "inference", "experiments", "benchmarks", "tests")
PRODUCT = ("prism_jax", "inference")
HIDING = ("options", "kwargs")  # names of `**options: Any` that pass on the signature of another function
FACES = ("prism_jax/__init__.py", "inference/__init__.py")  # of public names
FEWEST_LINES, MOST_LINES = 40, 500  # of a file; outside of it: look whether it is one story
MOST_PARAMETERS = 8
COPIED, SMALLEST_COPY = (
    0.8,
    3,
)  # share of the fields of a class, and its fewest fields, that make a report class its copy
QUANTILE = re.compile(r"p\d+")  # p50, p95: words of statistics, which say nothing of what a class is about
CONCEPTS = {
    "cloud": r"cloud|spot",
    "watch": r"watch|slow_phases",
    "host": r"host",
    "queue": r"queue|schedule_trace",
    "shard": r"sharding|shard_tables",
    "execution traces": r"execution",
}  # concept -> names of its files and folders
LIMITS = {
    "lines": 136_900,  # readers of launch files and profiles, detectors, export; the local page
    "files": 620,
    "folders": 70,
    "floors": 16,
    "public class names twice": 0,
    f"functions over {MOST_PARAMETERS} parameters": 15,
    "copied report classes": 0,
    **{f"folders of {concept}": 1 for concept in CONCEPTS},
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Violation:
    """One broken rule.

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

    @cached_property
    def statements(self) -> list[ast.AST]:
        """Its statements; those of functions and classes after those around them."""
        found: list[ast.AST] = [self.tree]
        for node in found:
            found += _below(node)
        return found

    @property
    def parts(self) -> tuple[str, ...]:
        """Its dotted name, in parts."""
        parts = Path(self.path).with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def folder(self) -> str:
        """The folder it lies in."""
        return Path(self.path).parent.as_posix()

    @property
    def package(self) -> tuple[str, ...]:
        """The package that relative imports start from."""
        return tuple(Path(self.path).parts[:-1])

    @property
    def of_product(self) -> bool:
        """Whether it is shipped."""
        return self.parts[0] in PRODUCT


def _below(node: ast.AST) -> list[ast.AST]:
    """Statements directly below a module or a statement; functions, classes and imports stand nowhere else."""
    return [each for block in ("body", "handlers", "cases", "orelse", "finalbody") for each in getattr(node, block, ())]


def modules(root: Path, folders: Sequence[str] = FOLDERS) -> list[Module]:
    """All Python files below `folders`, by path."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.py"))
    return [Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")) for file in files]


# Imports: circles of modules and of folders, floors


def imports_of(found: Sequence[Module]) -> dict[str, dict[str, int]]:
    """Path -> paths that it imports, with the first line that does."""
    known = {module.parts: module.path for module in found}
    graph: dict[str, dict[str, int]] = {}
    for module in found:
        edges = graph.setdefault(module.path, {})
        for path, line in _imports(module, known):
            edges.setdefault(path, line)
    return graph


def circles(found: Sequence[Module]) -> Iterator[Violation]:
    """Groups of modules of which each reaches every other by imports, one violation per group."""
    graph = imports_of(found)
    for group in _components({path: list(edges) for path, edges in graph.items()}):
        first, *rest = sorted(group)
        line = min(line for path, line in graph[first].items() if path in group)
        yield Violation(first, line, "imports", f"in a circle with {', '.join(rest) or 'itself'}")


def folder_graph(found: Sequence[Module]) -> dict[str, set[str]]:
    """Folder of the product -> folders that its files import.

    A file that lies directly in `prism_jax` or `inference` stands for itself; their `__init__`, whose names are loaded on
    first use, do not count.
    """
    product = [module for module in found if module.of_product and module.path not in FACES]
    folder_of = {each.path: each.path if each.folder in PRODUCT else each.folder for each in product}
    graph: dict[str, set[str]] = {folder: set() for folder in folder_of.values()}
    for path, edges in imports_of(product).items():
        graph[folder_of[path]] |= {folder_of[to] for to in edges} - {folder_of[path]}
    return graph


def folder_circles(found: Sequence[Module]) -> Iterator[Violation]:
    """Groups of folders that import each other, one violation per group."""
    graph = folder_graph(found)
    for group in _components({folder: sorted(to) for folder, to in graph.items()}):
        first, *rest = sorted(group)
        yield Violation(first, 0, "", f"folders import each other: {', '.join([first, *rest])}")


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest chain of folders of which each imports the next; folders in a circle are one floor."""
    group_of = {node: node for node in graph}
    for group in _components({node: sorted(to) for node, to in graph.items()}):
        group_of |= dict.fromkeys(group, " = ".join(sorted(group)))
    floors: dict[str, set[str]] = defaultdict(set)
    for node, below in graph.items():
        floors[group_of[node]] |= {group_of[to] for to in below} - {group_of[node]}
    best: dict[str, list[str]] = {}

    def chain(node: str) -> list[str]:
        if node not in best:
            best[node] = [node, *max(map(chain, sorted(floors[node])), key=len, default=[])]
        return best[node]

    return max(map(chain, sorted(floors)), key=len, default=[])


def _imports(module: Module, known: dict[tuple[str, ...], str]) -> Iterator[tuple[str, int]]:
    """Files that a module imports, and where."""
    for node in module.statements:
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


# Docstrings, types and signatures


def undescribed(found: Sequence[Module]) -> Iterator[Violation]:
    """Public classes, functions and methods without a docstring or with incomplete annotations."""
    declared = _declared(found)
    for module in found:
        if module.of_product:
            yield from _undescribed_in(module.path, module.tree.body, declared, ())


def _declared(found: Sequence[Module]) -> dict[str, tuple[set[str], set[str]]]:
    """Name of a class -> the methods that it documents, and the names of its bases."""
    declared: dict[str, tuple[set[str], set[str]]] = {}
    for module in found:
        for node in module.statements:
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


def untyped_options(found: Sequence[Module]) -> Iterator[Violation]:
    """Public functions and methods of the product that hide their signature behind `**options: Any`."""
    for module in found:
        for name, node in functions(module.tree) if module.of_product else ():
            kwarg = node.args.kwarg
            if kwarg is not None and kwarg.arg in HIDING and name == node.name:
                yield Violation(module.path, node.lineno, name, f"**{kwarg.arg}: Any hides its signature")


def functions(tree: ast.AST, front: str = "") -> Iterator[tuple[str, Function]]:
    """All functions below a node with their dotted names."""
    for node in _below(tree):
        inner = front
        if isinstance(node, Function | ast.ClassDef):
            inner = f"{front}{node.name}."
        if isinstance(node, Function):
            yield inner[:-1], node
        yield from functions(node, inner)


# Measures


def wide_functions(found: Sequence[Module]) -> list[str]:
    """Functions of the product with too many parameters, as `path:line: name: count`."""
    wide = []
    for module in found:
        for name, node in functions(module.tree) if module.of_product else ():
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            n = len([each for each in every if each.arg not in ("self", "cls")])
            if n > MOST_PARAMETERS:
                wide.append(f"{module.path}:{node.lineno}: {name}: {n}")
    return wide


def doubled_classes(found: Sequence[Module]) -> dict[str, list[str]]:
    """Public class name -> the files of the product that define it, where more than one does."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in found:
        for node in module.tree.body if module.of_product else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def concept_folders(found: Sequence[Module], pattern: str) -> set[str]:
    """Folders of `prism_jax` that hold what is named like a concept; folders below a counted one belong to it."""
    holds = set()
    for module in found:
        parts = Path(module.path).with_suffix("").parts
        if parts[0] != "prism_jax":
            continue
        for depth, name in enumerate(parts):
            if re.search(rf"(?:^|_)(?:{pattern})(?:_|$)", name):
                holds.add("/".join(parts[: depth + (depth < len(parts) - 1)]))
                break
    return holds


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
        return "report/types/" in self.path or self.path.endswith("report.py")


def copies(found: Sequence[Module]) -> Iterator[Violation]:
    """Report classes with at least `COPIED` of the fields of a domain class, which make half of their own fields at least.

    Notes:
        Classes of report modules (`report.py`, `prediction_report.py`; in older revisions `report/types/**`) are held against
        all others of at least `SMALLEST_COPY` fields.
        Fields are compared by name (that of `Key` where there is one) and by whether they may be None; a base's fields are no
        copy, nor are quantiles. Without the half, a report of 31 fields that names tp, pp and dp would be a copy of any class
        of these three.
    """
    classes = [one for module in found if module.of_product for one in _dataclasses(module)]
    domain = [one for one in classes if not one.of_report and len(one.fields) >= SMALLEST_COPY]
    for own in (one for one in classes if one.of_report):
        alike = [(len(own.fields & other.fields), other) for other in domain]
        copied = [(n, other) for n, other in alike if n >= COPIED * len(other.fields) and 2 * n >= len(own.fields)]
        if copied:
            n, other = max(copied, key=lambda pair: pair[0])
            text = f"copies {n} of {len(other.fields)} fields of {other.name} in {other.path}:{other.line}"
            yield Violation(own.path, own.line, own.name, text)


def _dataclasses(module: Module) -> Iterator[Fields]:
    for node in module.statements:
        if not isinstance(node, ast.ClassDef):
            continue
        decorators = {_last_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}
        if "dataclass" in decorators or any(_last_name(base) in ("Module", "StrictModule") for base in node.bases):
            stated = (
                each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )
            own = {_key(each): each for each in stated if _last_name(each.annotation) != "ClassVar"}
            names = frozenset(f"{name}{_nullable(own[name])}" for name in own if not QUANTILE.fullmatch(name))
            yield Fields(module.path, node.lineno, node.name, names)


def _nullable(stated: ast.AnnAssign) -> str:
    """ "?" where a field may be None: an answer that is known is no copy of a request that leaves it open."""
    return "?" if re.search(r"\bNone\b|\bOptional\b", ast.unparse(stated.annotation)) else ""


def _key(stated: ast.AnnAssign) -> str:
    """Name of a field in JSON."""
    for node in ast.walk(stated.annotation):
        if isinstance(node, ast.Call) and _last_name(node.func) == "Key" and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
    assert isinstance(stated.target, ast.Name)
    return stated.target.id


def measures(found: Sequence[Module]) -> dict[str, tuple[int, list[str]]]:
    """Name of a measure -> its value and what it counts."""
    product = [module for module in found if module.of_product]
    chain = longest_chain(folder_graph(found))
    doubled = [f"{name}: {', '.join(paths)}" for name, paths in doubled_classes(found).items()]
    wide, copied = wide_functions(found), [str(each) for each in copies(found)]
    rows: dict[str, tuple[int, list[str]]] = {
        "lines": (sum(module.text.count("\n") for module in product), []),
        "files": (len(product), []),
        "folders": (len({module.folder for module in product}), []),
        "floors": (len(chain), [" > ".join(chain)]),
        "public class names twice": (len(doubled), doubled),
        f"functions over {MOST_PARAMETERS} parameters": (len(wide), wide),
        "copied report classes": (len(copied), copied),
    }
    for concept, pattern in CONCEPTS.items():
        folders = sorted(concept_folders(found, pattern))
        rows[f"folders of {concept}"] = (len(folders), folders)
    return rows


def odd_sizes(found: Sequence[Module]) -> list[str]:
    """Files of the product with few or many lines; `__init__` files may be short."""
    rows = []
    for module in found:
        n = module.text.count("\n")
        if module.of_product and (n > MOST_LINES or (n < FEWEST_LINES and not module.path.endswith("__init__.py"))):
            rows.append(f"{module.path}: {n} lines")
    return rows


def violations(found: Sequence[Module]) -> list[Violation]:
    """Everything that breaks a rule, in order of files and lines."""
    rules: Iterable[Iterator[Violation]] = (
        circles(found),
        folder_circles(found),
        undescribed(found),
        untyped_options(found),
    )
    return sorted(violation for rule in rules for violation in rule)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 1 where a rule is broken or a measure exceeds its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--measures", action="store_true", help="print every measure and what it counts")
    parser.add_argument("--sizes", action="store_true", help="list files outside of 40 to 500 lines")
    options = parser.parse_args(arguments)
    found = modules(options.root)
    broken = [str(each) for each in violations(found)]
    for name, (value, items) in measures(found).items():
        if options.measures:
            print(f"{name}: {value:,} (at most {LIMITS[name]:,})", *(f"    {item}" for item in items), sep="\n")
        if value > LIMITS[name]:
            broken.append(f"{name}: {value:,}, more than {LIMITS[name]:,} (`--measures` lists them)")
    if options.sizes:
        print(*odd_sizes(found), sep="\n")
    print(*broken, sep="\n", end="\n" if broken else "")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
