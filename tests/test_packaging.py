"""The project as it is installed: what the wheel holds, what is pinned, what importing costs, which Python is chosen."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import prism_jax
from prism_jax import _inference_loader as _door
from prism_jax._inference_loader import InferenceLoaderError

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PIN = re.compile(r'[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*( ; python_version (<|>=) "3\.12")?')


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_are_names_and_versions_only():
    assert [line for line in pins() if not PIN.fullmatch(line)] == []


def test_every_dependency_is_pinned():
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        normal(re.split(r"[\[<>=]", text)[0])
        for text in [*PROJECT["project"]["dependencies"], *sum(extras.values(), [])]
    }
    pinned = {normal(line.split("==")[0]) for line in pins()}
    assert wanted - {"prism-jax", "torch"} <= pinned  # torch captures PyTorch; CI reads captures that are committed


def test_wheel_holds_both_packages_and_the_shipped_jobs():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["prism_jax", "inference"]
    assert wheel["force-include"] == {"examples": "prism_jax/_examples"}


@pytest.mark.parametrize("package", PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
def test_both_packages_say_that_they_are_typed(package):
    assert (ROOT / package / "py.typed").is_file()
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert not {"exclude", "only-include", "sources"} & set(wheel)  # every file of a package is in the wheel
    if (ROOT / ".git").exists():
        ignored = subprocess.run(["git", "check-ignore", "-q", f"{package}/py.typed"], cwd=ROOT, check=False)
        assert ignored.returncode != 0


def test_tracked_files_name_no_download_address():
    for name in (
        "pyproject.toml",
        "constraints.txt",
        "Makefile",
        ".ci/run",
        "scripts/make_venv",
        "scripts/find_python",
    ):
        assert "://" not in (ROOT / name).read_text(encoding="utf-8"), name


def test_importing_the_package_imports_no_jax_and_no_tables():
    code = "import sys, prism_jax; prism_jax.Job; prism_jax.load_job; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {
        "jax",
        "jaxlib",
        "equinox",
        "numpyro",
        "pandas",
        "pyarrow",
        "matplotlib",
        "scipy.stats",
        "inference",
    }


@pytest.mark.parametrize("name", prism_jax.__all__)
def test_public_name_resolves(name):
    assert getattr(prism_jax, name) is not None
    assert name in dir(prism_jax)


def test_names_for_type_checkers_are_the_public_names():
    tree = ast.parse((ROOT / "prism_jax" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.asname: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == prism_jax._HOME


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'predct'"):
        prism_jax.predct  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_door_opens_to_our_inference():
    assert _door.MARK in Path(str(_door.inference().__file__)).read_text(encoding="utf-8")


def test_door_refuses_another_inference_without_importing_it(tmp_path):
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "__init__.py").write_text("raise SystemExit('foreign code ran')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import prism_jax; prism_jax.fit()"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "InferenceLoaderError" in done.stderr
    assert "which is not the inference package of prism-jax" in done.stderr
    assert "foreign code ran" not in done.stderr


def test_door_refuses_a_missing_or_overwritten_inference(tmp_path):
    ours = tmp_path / "__init__.py"
    with pytest.raises(InferenceLoaderError, match="Reinstall prism-jax"):
        _door._check(None, ours)
    ours.write_text('"""Another distribution."""\n')
    with pytest.raises(InferenceLoaderError, match="another distribution has written over it"):
        _door._check(ours, ours)


@pytest.fixture
def names(tmp_path):
    """A folder for PATH with a failing shim, and a way to add working interpreters."""
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    return tmp_path


def find_python(folder, **environment):
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "find_python")],
        env={"PATH": str(folder), "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def working(file):
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    file.chmod(0o755)
    return file


def test_a_python_that_does_not_start_is_passed_over(names):
    python = working(names / "python3")
    assert find_python(names).stdout.strip() == str(python)


def test_no_usable_python_is_said_with_a_remedy(names):
    (names / "cat").symlink_to("/bin/cat")
    done = find_python(names)
    assert done.returncode == 1
    assert "Install one" in done.stderr
    assert "make demo PYTHON=" in done.stderr


def test_a_named_python_must_work_too(names):
    python = working(names / "mine")
    assert find_python(names, PYTHON=str(python)).stdout.strip() == str(python)
    done = find_python(names, PYTHON=str(names / "python3.13"))
    assert done.returncode == 1
    assert "does not start" in done.stderr


def test_quick_start_is_found_in_a_readme(tmp_path):
    readme = tmp_path / "README.md"
    text = "# x\n```python\nno\n```\n## Quick start\n```sh\nno\n```\n```python\n# yes\na = 1\n```\n## B\n```python\nno\n```\n"
    readme.write_text(text)
    command = [sys.executable, str(ROOT / "scripts" / "quick_start.py"), str(readme)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "# yes\na = 1"
    readme.write_text("# x\n")
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 1
