"""Words that people should not have to puzzle over: none is left in code and documentation, and the check finds them."""

from pathlib import Path

from scripts.words import findings


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"README.md": "", "docs/index.md": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_no_riddles_are_left():
    assert "\n".join(map(str, findings())) == ""


def test_a_docstring_that_only_points_somewhere_is_found(tmp_path):
    functions = (
        'def f():\n    """What a job costs."""\n\n\ndef g():\n    """Cost of a job, and what it is made of."""\n'
    )
    (one,) = findings(written(tmp_path, {"prism_jax/a/x.py": functions}))
    assert (one.path, one.line, one.found) == ("prism_jax/a/x.py", 2, "What a job costs.")


def test_a_phrase_is_found_in_messages_and_pages_on_its_line(tmp_path):
    files = {
        "prism_jax/x.py": 'TEXT = """a\nlog that is no part of the job"""\n',
        "inference/y.py": "beside = 1  # names and comments are not read\n",
        "docs/page.md": "# Page\n\nA second job runs Beside it.\n",
    }
    found = findings(written(tmp_path, files))
    assert [(one.path, one.line, one.found) for one in found] == [
        ("docs/page.md", 3, "Beside"),
        ("prism_jax/x.py", 2, "is no part of"),
    ]
