"""Builds wheel and sdist, checks them, and installs them in empty environments: `make release-check`.

For every Python 3.11 to 3.13 that is found: pip from wheel and from sdist, uv, `uv tool install`, pipx. In each of them
`prism-jax doctor` and `prism-jax predict` run outside the checkout, with an empty cache. A bill of materials (CycloneDX) is
written beside the wheel. The tools are installed into an environment of their own. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("build", "twine", "uv", "pipx", "cyclonedx-bom")
VERSIONS = ("3.11", "3.12", "3.13")
JOB = "llama2_7b_fsdp_64"
OWN = ("prism_jax/", "inference/")
PAGE, PAGE_SUFFIXES = "prism_jax/serve/static/", {".css", ".js", ".svg"}  # what the local page loads
SUFFIXES = {
    ".py",
    ".sh",
    ".typed",
    ".toml",
    ".json",
    ".yaml",
    ".csv",
    ".md",
    ".gz",
    ".parquet",
    ".npz",
    ".txt",
    ".mplstyle",
    ".ipynb",
}
NOT_SHIPPED = ("__pycache__", "/.", "/tests/", ".pyc")


def run(*command: str | Path, **more: str) -> str:
    """Output of a command, outside the checkout and without what would lead back into it.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX_", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=tempfile.gettempdir(),
        env=environment | more,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
        done.check_returncode()
    return done.stdout


def pythons() -> dict[str, str]:
    """Version -> interpreter, of those that start and can make environments."""
    found = {}
    for version in VERSIONS:
        folders = [
            *os.environ["PATH"].split(os.pathsep),
            *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin")),
        ]
        for folder in folders:
            file = Path(folder) / f"python{version}"
            if (
                file.exists()
                and subprocess.run([file, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
            ):
                found[version] = str(file)
                break
    return found


def foreign_files(names: Sequence[str]) -> list[str]:
    """Files of a wheel that are not ours to ship: outside both packages, of unknown kind, or left over from a run.

    Example:
        >>> foreign_files(["prism_jax/job/job.py", "notes.txt", "prism_jax-1.dist-info/METADATA"])
        ['notes.txt']
    """
    own = [name for name in names if ".dist-info/" not in name]
    return [
        name
        for name in own
        if not name.startswith(OWN)
        or Path(name).suffix not in (SUFFIXES | PAGE_SUFFIXES if name.startswith(PAGE) else SUFFIXES)
        or any(part in name for part in NOT_SHIPPED)
    ]


def used(program: Path | str, work: Path) -> None:
    """Runs what a newcomer runs first.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    cache = {"PRISM_JAX_CACHE": tempfile.mkdtemp(dir=work)}
    run(program, "doctor", **cache)
    predicted = json.loads(run(program, "predict", JOB, "--fast", "--json", **cache))
    if not predicted["step_time_s"]["p95"] > predicted["step_time_s"]["p50"] > 0.0:
        raise ValueError(f"{program}: p95 {predicted['step_time_s']['p95']}")


def ways(
    folder: Path, tools: Path, wheel: Path, sdist: Path, python: str
) -> Iterator[tuple[str, Callable[[], Path | str]]]:
    """How a user may install it: a name, and what installs it and returns the program."""
    constraints = ("-c", ROOT / "constraints.txt")

    def by_pip(file: Path) -> Path:
        run(python, "-m", "venv", folder / file.suffix)
        run(folder / file.suffix / "bin" / "python", "-m", "pip", "install", "-q", *constraints, file)
        return folder / file.suffix / "bin" / "prism-jax"

    def by_uv() -> Path:
        run(tools / "uv", "venv", "-q", "--python", python, folder / "uv")
        run(tools / "uv", "pip", "install", "-q", "--python", folder / "uv" / "bin" / "python", *constraints, wheel)
        return folder / "uv" / "bin" / "prism-jax"

    def by_uv_tool() -> Path:
        places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
        run(tools / "uv", "tool", "install", "-q", "--python", python, *constraints, wheel, **places)
        return folder / "bin" / "prism-jax"

    def by_pipx() -> Path:
        places = {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "pipx_bin")}
        arguments = f"-c {ROOT / 'constraints.txt'}"
        run(tools / "pipx", "install", "-q", "--python", python, "--pip-args", arguments, wheel, **places)
        return folder / "pipx_bin" / "prism-jax"

    yield "pip, wheel", lambda: by_pip(wheel)
    yield "pip, sdist", lambda: by_pip(sdist)
    yield "uv pip", by_uv
    yield "uv tool", by_uv_tool
    yield "pipx", by_pipx


def built(tools: Path, out: Path) -> tuple[Path, Path]:
    """Wheel and sdist of this checkout, checked.

    Raises:
        ValueError: there are files in the wheel that are not ours to ship.
    """
    run(tools / "python", "-m", "build", "-o", out, ROOT)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    run(tools / "twine", "check", "--strict", wheel, sdist)
    names = zipfile.ZipFile(wheel).namelist()
    if foreign := foreign_files(names):
        raise ValueError(f"foreign files in {wheel.name}: {', '.join(foreign[:10])}")
    print(
        f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 1e6:.1f} MB, none foreign; twine check --strict passed"
    )
    return wheel, sdist


def main() -> None:
    """Does all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of wheel, sdist and bill of materials")
    parser.add_argument("--only", action="append", default=[], help="version of Python; may be repeated")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        run(sys.executable, "-m", "venv", work / "tools")
        tools = work / "tools" / "bin"
        run(tools / "python", "-m", "pip", "install", "-q", *TOOLS)
        shutil.rmtree(given.out, ignore_errors=True)
        wheel, sdist = built(tools, given.out)
        failed = False
        for version, python in pythons().items():
            if given.only and version not in given.only:
                continue
            folder = Path(tempfile.mkdtemp(dir=work))
            for way, install in ways(folder, tools, wheel, sdist, python):
                try:
                    program = install()
                    used(program, work)
                    told = "doctor and predict ran"
                    if way == "uv pip":
                        bill = given.out / f"prism-jax-{version}.cdx.json"
                        run(tools / "cyclonedx-py", "environment", Path(program).parent / "python", "-o", bill)
                except (subprocess.CalledProcessError, ValueError) as error:
                    failed, told = True, f"FAILED: {error}"
                print(f"Python {version}  {way:<10}  {told}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)  # a gigabyte per environment
        for missing in (version for version in given.only or VERSIONS if version not in pythons()):
            print(f"Python {missing}  not on this machine")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
