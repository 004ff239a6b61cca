"""Every path and every module that a page, a docstring or a comment names exists.

Read are the pages (*.md but the change log, which tells what was) and the docstrings and comments of the packages, scripts,
benchmarks and experiments. Names with a placeholder (`NAME`, `*`, `<...>`, `{...}`), files of the user and `../shared/...` are no
claims.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("prism_jax", "inference")
SOURCES = ("prism_jax", "inference", "scripts", "benchmarks", "experiments", "docs")
KNOWN_FROM = (
    "",
    "prism_jax",
    "inference",
    "docs",
    "tests",
)  # folders that a path may start in, beside those above its own file
SUFFIX = r"\.(?:py|md|toml|yaml|csv|json|txt)"
PATH = re.compile(rf"(?<![\w./<*{{-])((?:[A-Za-z_][\w.-]*/)+[\w.-]+{SUFFIX})(?![\w*}}])")
MODULE_FILE = re.compile(r"`(\w+\.py)`")
FOLDER = re.compile(r"`((?:[a-z_]\w*/)+)`")
DOTTED = re.compile(r"(?<![\w./-])((?:prism_jax|inference|experiments|benchmarks)(?:\.(?!md\b)[A-Za-z_]\w*)+)")
PARTIAL = re.compile(r"`([a-z]\w*(?:\.[A-Za-z_]\w*)+)[`(]")
NO_FOLDERS = {
    "cluster",
    "framework",
    "model",
    "plan",
    "software",
    "variability",
    "data",
    "schedule",
}  # fields and attributes, mostly
ENDING = re.compile(r"\.(?:csv|gz|json|md|npz|png|py|toml|txt|yaml)$")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
PLACEHOLDER = re.compile(r"(?:^|/)[A-Z]+(?:\.|/|$)")
OF_USERS = {"examples/capture/NAME.py", "my_commands.py", "recipe.py"}
DATA = re.compile(
    r"(?:steps|steps2|cloud|megatron_ci|formats)/[\w/.-]+\.(?:csv|json)"
)  # of the data folder, which is no part of this
OF_OTHERS = {  # files of other projects, which are named as sources
    "Megatron-LM": (
        "megatron/core/pipeline_parallel/schedules.py",
        "megatron/core/transformer/transformer_config.py",
        "core/distributed/distributed_data_parallel.py",
        "docs/source/api-guide/dist_optimizer.md",
    ),
    "nanotron": ("optim/gradient_accumulator.py", "models/base.py"),
    "PyTorch": (
        "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
        "torch/optim/adam.py",
        "tools/autograd/derivatives.yaml",
    ),
    "torchtitan": ("distributed/activation_checkpoint.py", "config/job_config.py"),
    "torchvision": tuple(
        f"{folder}{name}.py"
        for folder in ("models/", "")
        for name in ("alexnet", "convnext", "densenet", "efficientnet", "inception", "mnasnet", "mobilenetv2", "resnet")
        + ("shufflenetv2", "squeezenet", "vgg")
    ),
    "DualPipe": ("dualpipe.py",),
    "Transformer Engine": ("transformer_engine/pytorch/module/base.py",),
}
FOREIGN = {path for paths in OF_OTHERS.values() for path in paths}


@cache
def tracked() -> tuple[str, ...]:
    """Files of the repository, those not yet committed too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no git checkout")
    return tuple(name for name in done.stdout.splitlines() if (ROOT / name).exists())


@cache
def file_names() -> frozenset[str]:
    """Names of files of the packages, and of what else a page may call by its name alone."""
    places = (*PACKAGES, "docs", "experiments/power_fit", "experiments/cloud/spot")
    return frozenset(Path(name).name for name in tracked() if name.startswith(places))


def is_file(name: str, file: Path) -> bool:
    """Whether a file called by its name alone is there: beside the module that says so, or in a package if a page does."""
    in_experiments, in_scripts = (file.is_relative_to(ROOT / folder) for folder in ("experiments", "scripts"))
    if (file.suffix == ".md" and not in_experiments) or in_scripts:
        return name in file_names()
    return exists(name, file)


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Lines of a page; docstrings and comments of a module, with the line where each begins."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
            yield node.body[0].lineno, said


def exists(path: str, file: Path) -> bool:
    """Whether a path is found from the root, a package, or a folder above the file that names it."""
    bases = [ROOT / base for base in KNOWN_FROM] + [folder for folder in file.parents if folder.is_relative_to(ROOT)]
    return any((base / path).exists() for base in bases)


def is_name(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that stands in one."""
    at, parts = ROOT, dotted.split(".")
    while parts and (at / parts[0]).is_dir():
        at, parts = at / parts[0], parts[1:]
    if not parts:
        return True
    module = at / f"{parts[0]}.py"
    if module.exists():
        parts = parts[1:]
    else:
        module = at / "__init__.py"
    return not parts or (
        module.exists() and re.search(rf"\b{parts[0]}\b", module.read_text(encoding="utf-8")) is not None
    )


def stale(text: str, file: Path) -> Iterator[str]:
    """What a text names that is not there."""
    for path in PATH.findall(text):
        known = path in FOREIGN or path in OF_USERS or DATA.fullmatch(path) or PLACEHOLDER.search(path)
        if not known and not exists(path, file):
            yield path
    for name in MODULE_FILE.findall(text):
        if name not in OF_USERS | FOREIGN and not PLACEHOLDER.search(name) and not is_file(name, file):
            yield name
    for folder in FOLDER.findall(text):
        if not exists(folder, file):
            yield folder
    for name in PARTIAL.findall(text):
        first = name.split(".")[0]
        package = next((package for package in PACKAGES if (ROOT / package / first).is_dir()), None)
        if package and first not in NO_FOLDERS and not ENDING.search(name) and not is_name(f"{package}.{name}"):
            yield name
    yield from (dotted for dotted in DOTTED.findall(text) if not is_name(dotted))


def readers() -> list[Path]:
    pages = [ROOT / name for name in tracked() if name.endswith(".md") and name != "CHANGELOG.md"]
    return pages + [ROOT / name for name in tracked() if name.endswith(".py") and name.split("/")[0] in SOURCES]


def test_paths_and_modules_exist():
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in readers()
        for line, text in texts(file)
        for name in stale(text, file)
    ]
    assert not found, "names of files or modules that do not exist:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "see cost/nearby.py",
        "`nearby_costs.py`",
        "`cost/near/`",
        "prism_jax.cost.nearby",
        "prism_jax.cost.compute.nearby_s",
    ],
)
def test_stale_names_are_found(text: str):
    assert list(stale(text, ROOT / "docs" / "method.md"))


@pytest.mark.parametrize(
    "text",
    [
        "see cost/compute.py",
        "`compute.py`",
        "`cost/`",
        "prism_jax.cost.compute.gemm_s",
        "`presets/NAME.toml`",
        "torch/optim/adam.py",
    ],
)
def test_names_that_exist_are_not(text: str):
    assert not list(stale(text, ROOT / "docs" / "method.md"))


def anchors(page: Path) -> set[str]:
    """What links to the headings of a page say after `#`."""
    headings = (line.lstrip("# ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere():
    broken = []
    for page in (file for file in readers() if file.suffix == ".md"):
        for path, heading in LINK.findall(page.read_text(encoding="utf-8")):
            target = page.parent / path if path else page
            if not target.exists() or (heading and heading not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {path}#{heading}")
    assert not broken, "links that lead nowhere:\n" + "\n".join(broken)


@pytest.mark.parametrize("package", PACKAGES)
def test_contributing_names_every_folder(package: str):
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {
        Path(name).parts[1] for name in tracked() if name.startswith(f"{package}/") and len(Path(name).parts) > 2
    }
    assert not [folder for folder in sorted(folders) if f"`{folder}/`" not in page]
