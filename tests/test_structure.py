"""How the code is built: what `make lint` checks beyond ruff, pyright and import-linter, and that the check sees it."""

from pathlib import Path

import pytest

from scripts.structure import (
    circles,
    copies,
    folder_circles,
    longest_chain,
    main,
    measures,
    modules,
    undescribed,
    untyped_options,
)


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_code_is_built_as_it_should_be(capsys):
    assert main([]) == 0, capsys.readouterr().out


def test_folders_that_import_each_other_are_found(tmp_path):
    written(tmp_path, {"prism_jax/a/x.py": "from ..b import y\n", "prism_jax/b/y.py": "", "prism_jax/errors.py": ""})
    assert list(folder_circles(modules(tmp_path))) == []
    written(tmp_path, {"prism_jax/b/z.py": "def f():\n    from ..a.other import g\n", "prism_jax/a/other.py": ""})
    assert [each.text for each in folder_circles(modules(tmp_path))] == [
        "folders import each other: prism_jax/a, prism_jax/b"
    ]
    assert not list(circles(modules(tmp_path)))  # no module does


def test_the_longest_chain_of_folders_counts_a_circle_as_one_floor():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": {"e"}, "e": set(), "f": {"e"}}
    assert longest_chain(graph) == ["a", "b = c", "d", "e"]


def test_hidden_signatures_wide_functions_doubled_names_and_concepts_are_found(tmp_path):
    wide = "def f(" + ", ".join(f"a{i}" for i in range(9)) + "): pass\n"
    hidden = "def g(x, **options: Any) -> None: ...\ndef _h(**options: Any) -> None: ...\n"
    written(
        tmp_path,
        {"prism_jax/queue/a.py": wide + hidden + "class A: ...\n", "prism_jax/tables/queue_trace.py": "class A: ..."},
    )
    found = modules(tmp_path)
    assert [each.name for each in untyped_options(found)] == ["g", "_h"]
    rows = measures(found)
    assert rows["functions over 8 parameters"] == (1, ["prism_jax/queue/a.py:1: f: 9"])
    assert rows["public class names twice"][0] == 1
    assert rows["folders of queue"] == (2, ["prism_jax/queue", "prism_jax/tables"])
    assert rows["folders"][0] == 2


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("from .b import f\n", "from . import a\n"),
        ("import prism_jax.b\n", "def f():\n    from .a import g\n"),
        (
            "from ..prism_jax.b import f\n",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from prism_jax.a import g\n",
        ),
    ],
)
def test_modules_that_import_each_other_are_found(tmp_path, there, back):
    written(tmp_path, {"prism_jax/__init__.py": "", "prism_jax/a.py": there, "prism_jax/b.py": back})
    found = list(circles(modules(tmp_path)))
    assert [str(each) for each in found] == ["prism_jax/a.py:1: imports: in a circle with prism_jax/b.py"]
    written(tmp_path, {"prism_jax/b.py": "import prism_jax.c\n", "prism_jax/c.py": ""})
    assert list(circles(modules(tmp_path))) == []


def test_a_circle_of_scripts_through_a_third_is_found(tmp_path):
    scripts = {"a": "import b\n", "b": "from c import f\n", "c": "def f():\n    from a import g\n", "d": "import a\n"}
    written(tmp_path, {f"experiments/x/{name}.py": text for name, text in scripts.items()})
    (found,) = circles(modules(tmp_path))
    assert (found.path, found.text) == ("experiments/x/a.py", "in a circle with experiments/x/b.py, experiments/x/c.py")


def test_what_is_public_needs_a_docstring_and_types(tmp_path):
    text = """class A:
    @property
    def size(self) -> int:
        return 1

    def __len__(self):
        return 1

def f(a, *b, c: int = 1, **d) -> int:
    'Adds.'
    def inner(x):
        return x
    return 1

def _hidden(x):
    return x
"""
    written(tmp_path, {"prism_jax/a.py": text, "experiments/x.py": text})
    assert [str(each) for each in undescribed(modules(tmp_path))] == [
        "prism_jax/a.py:1: A: no docstring",
        "prism_jax/a.py:3: A.size: no docstring",
        "prism_jax/a.py:9: f: no type of a, b, d",
    ]


def test_what_a_base_class_describes_need_not_be_described_again(tmp_path):
    base = """class Base(Protocol[T]):
    'What there is.'
    def f(self) -> int:
        'One.'
        ...
    def g(self) -> int: ...
"""
    below = """class Below(base.Base[int]):
    'One kind.'
    def f(self) -> int:
        return 1
    def g(self) -> int:
        return 1
"""
    written(tmp_path, {"prism_jax/base.py": base, "prism_jax/below.py": below})
    assert [str(each) for each in undescribed(modules(tmp_path))] == ["prism_jax/below.py:5: Below.g: no docstring"]


def test_a_report_class_with_the_fields_of_a_domain_class_is_found(tmp_path):
    domain = """@dataclass(frozen=True)
class Row(Base):
    n: int
    share: Annotated[float, Key("part")]
    time_s: float = nan
"""
    report = """@dataclass
class RowFacts:
    kind: ClassVar[str] = "row"
    n: int
    part: float
    time_s: float

@dataclass
class MoreFacts(Row):
    note: str

@dataclass
class Whole:
    n: int
    part: float
    time_s: float
    one: int
    two: int
    three: int
    four: int
"""
    written(tmp_path, {"prism_jax/law.py": domain, "prism_jax/row/report.py": report, "tests/x.py": domain})
    assert [str(each) for each in copies(modules(tmp_path))] == [
        "prism_jax/row/report.py:2: RowFacts: copies 3 of 3 fields of Row in prism_jax/law.py:2"
    ]
