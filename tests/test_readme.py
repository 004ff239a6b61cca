"""README, guides and tutorials are true: code and commands run, output is what they print, jobs load, links lead somewhere.

Every fenced block and every command in the text is executed: those after `<!-- run -->` as printed, with shipped jobs; the others
on small files written here, with the options of `FASTER` where they take long. Blocks of a tutorial run in turn in one folder.
`<!-- output -->` blocks are compared with what the block before printed (quantiles within 2%), `<!-- job -->` blocks are loaded.
Commands with a placeholder (`JOB`) must exist, with their options.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import inference
from prism_jax import load_job
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.search.space import default_space
from prism_jax.search.space_file import read_space
from prism_jax.shell.app import COMPLETION, command_line, main
from prism_jax.shell.catalogue import called, completed
from prism_jax.validation.score import group_of
from tests.support.readme_inputs import REFUSED, write_inputs

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ("command_line", "python", "recordings", "measurements", "plans", "placement", "queue")
PAGES = ("README.md", *(f"docs/{name}.md" for name in GUIDES))
TUTORIALS = tuple(f"docs/tutorials/{file.name}" for file in sorted((ROOT / "docs" / "tutorials").glob("*.md")))
TABLES = ("docs/howto.md", "docs/faq.md", "docs/index.md")  # that name commands
PLACEHOLDER = re.compile(r"(?<![\w-])[A-Z]{3,}(?![\w-])")  # JOB, FILE, MODEL
BLOCK = re.compile(r"(?:<!-- (run|output|job) -->\n)?^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z0-9-]*")
OF_LAUNCH_SCRIPTS = {"--fp8-param-gather", "--grad-reduce-in-bf16"}  # Megatron's own; a tutorial has a table of others
LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
QUANTILE = re.compile(r"^ *(p50|p95|p99) +([\d.]+)", re.MULTILINE)
NOT_RUN = ("python", "yaml")  # languages of blocks that hold no commands
FASTER = {  # start of a command -> options that make it small
    "fit fleet": "--method map",
    "fit steps": "--method map",
    "predict llama3_405b_16384 --fit": "--set model=llama-3-8b --set plan.pp=1 --set plan.schedule=1f1b"
    " --set plan.virtual_stages=1 --set plan.dp=2 --set plan.global_batch=2 --samples 8 --force",
    "validate steps many_runs.csv": "--deterministic",
    "job": "--worlds 200",
    "sweep": "--samples 64",
    "scale": "--samples 64",
    "compare": "--samples 64",
    "plan": "--space space.yaml --samples 64",
    "search": "--space space.yaml",
    "place": "--set plan.dp=2 --set plan.global_batch=16",
}
ELSEWHERE = {  # commands that other tests run, since they change the shell or the environment of the user
    "prism-jax --install-completion": "tests/prism_jax/shell/test_streams.py",
    "pip install .": "tests/test_packaging.py",
}


class Block(NamedTuple):
    """One fenced block of the README."""

    use: str
    language: str
    text: str


def text_of(*pages: str) -> str:
    return "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)


def blocks(*pages: str) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(text_of(*(pages or PAGES)))]


def runnable(page: str) -> list[tuple[Block, str]]:
    """Blocks of a page to run, each with the output that the page prints below it, if any."""
    found = blocks(page)
    after = [*found[1:], Block("", "", "")]
    return [(b, n.text if n.use == "output" else "") for b, n in zip(found, after, strict=True) if b.use == "run"]


def single_blocks() -> list[Any]:
    """Blocks that run alone, named by page, language and number."""
    found = []
    for page in PAGES:
        for number, (block, printed) in enumerate(runnable(page)):
            found.append(pytest.param(block, printed, id=f"{Path(page).stem}-{block.language}-{number}"))
    return found


def printed_commands(block: Block) -> list[str]:
    """Command lines of a block that is not marked: all lines of a shell block, those after a prompt of any other."""
    if block.language == "sh":
        return [line for line in block.text.splitlines() if line.strip()]
    return [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]


def unmarked() -> list[list[str]]:
    """Commands of every block without a mark, in order."""
    found = (printed_commands(b) for b in blocks() if not b.use and b.language not in NOT_RUN)
    return [commands for commands in found if commands]


def inline_commands() -> set[str]:
    """Commands in the text, alternatives such as `show a|b` one by one; the name of the program alone is none."""
    starts = ("prism-jax ", "pip ", "make ")
    return {each for text in prose_code() if text.startswith(starts) for each in spelled(text)}


def prose_code() -> list[str]:
    """Code within lines of text."""
    return INLINE.findall(BLOCK.sub("", text_of(*PAGES, *TUTORIALS, *TABLES)))


def spelled(command: str) -> Iterator[str]:
    words = command.split()
    choice = next((i for i, word in enumerate(words) if "|" in word), None)
    if choice is None:
        yield command
        return
    for word in words[choice].split("|"):
        yield " ".join([*words[:choice], word, *words[choice + 1 :]])


def smaller(command: str) -> str:
    """The command with options that make it fast."""
    return next(
        (f"{command} {more}" for start, more in FASTER.items() if command.startswith(f"prism-jax {start}")), command
    )


def run_command(line: str) -> int:
    """Exit code of one printed line."""
    command = line.partition("#")[0].strip()
    words = shlex.split(command)
    if words[0] == "make":  # what it does is tested elsewhere: here, that there is such a target
        return subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=False).returncode
    assert words[0] == "prism-jax", line
    return main(shlex.split(smaller(command))[1:])


def run_block(block: Block, names: dict[str, Any]) -> None:
    """Runs a block as it is printed; `names` are those that Python code finds and leaves."""
    if block.language == "python":
        exec(compile(block.text, "page.md", "exec"), names)
        return
    for command in block.text.strip().splitlines():
        program, *arguments = shlex.split(command, comments=True)
        assert program == "prism-jax"
        assert main(arguments) == 0, command


@pytest.mark.parametrize(("block", "printed"), single_blocks())
def test_code_runs_and_prints_what_the_page_shows(
    block: Block, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    run_block(block, {})
    assert_printed(printed, capsys.readouterr().out)


@pytest.mark.parametrize("page", TUTORIALS)
def test_tutorials_run_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert all(block.use for block in blocks(page) if block.language != "text")
    for block, printed in runnable(page):
        run_block(block, names)
        assert_printed(printed, capsys.readouterr().out)


def assert_printed(printed: str, out: str) -> None:
    """Quantiles of a page are those that were printed, within 2%."""
    shown, actual = dict(QUANTILE.findall(printed)), dict(QUANTILE.findall(out))
    assert shown.keys() <= actual.keys()
    for name, value in shown.items():
        assert float(actual[name]) == pytest.approx(float(value), rel=0.02), name


def shipped_folds(rows: Any, by: str, **_: Any) -> dict[str, Calibration]:
    """In the place of calibrations fitted without each group, which take half a minute."""
    return {group_of(row, by): shipped() for row in rows}


@pytest.mark.parametrize("commands", unmarked(), ids=lambda commands: commands[0].partition("#")[0].strip())
def test_commands_on_files_of_the_reader_run(
    commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    monkeypatch.setattr(inference, "step_folds", shipped_folds)
    if commands == ["prism-jax check my_job.yaml"]:  # the README shows what is said of a job that cannot be
        (tmp_path / "my_job.yaml").write_text(REFUSED)
        assert run_command(commands[0]) == 2
        assert capsys.readouterr().err.strip() in text_of(*PAGES)
        return
    for command in commands:
        assert run_command(command) == 0, (command, capsys.readouterr().err)


@pytest.mark.slow
def test_groups_are_left_out_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    (command,) = (c for commands in unmarked() for c in commands if "--leave-out" in c)
    assert run_command(command) == 0


@pytest.mark.parametrize("command", sorted(each for each in inline_commands() if PLACEHOLDER.search(each)))
def test_commands_with_placeholders_exist(command: str, capsys: pytest.CaptureFixture[str]):
    _, *words = command.split()
    found = called(completed(["x" if PLACEHOLDER.search(word) else word for word in words]))
    assert found is not None
    assert main([*found.name.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert [word for word in words if word.startswith("-") and word not in said] == []


@pytest.mark.parametrize("command", sorted(each for each in inline_commands() if not PLACEHOLDER.search(each)))
def test_commands_in_the_text_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if command in ELSEWHERE:
        assert (ROOT / ELSEWHERE[command]).exists()
        return
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    assert run_command(command) == 0


def test_python_that_searches_runs_on_a_small_space(tmp_path: Path):
    (block,) = (b for b in blocks() if b.language == "python" and not b.use)
    write_inputs(tmp_path)
    space = read_space(tmp_path / "space.yaml", default_space(load_job("gpt3_175b_1024")))
    small = block.text.replace('objective="p95"', 'objective="p95", space=space')
    assert small.count("space=space") == 2
    exec(compile(small, "README.md", "exec"), {"space": space})


def test_options_in_the_text_exist():
    script = (
        command_line([], complete=True).generate_completion(shell="bash").replace('"', " ")
    )  # where they stand in quotes
    known = set(OPTION.findall(script)) | set(COMPLETION)
    of_megatron = re.findall(r"^\| (`--.*?) \|", text_of("docs/tutorials/megatron.md"), re.MULTILINE)
    printed = {option for text in prose_code() for option in OPTION.findall(text)}
    printed -= {option for cell in of_megatron for option in OPTION.findall(cell.replace("`", " "))} - OF_LAUNCH_SCRIPTS
    assert len(printed) > 10
    assert printed - known == OF_LAUNCH_SCRIPTS


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= 120


def test_no_block_is_left_out():
    """A command line or code in a language that no test above runs would go unseen."""
    assert {b.language for b in blocks()} <= {"sh", "text", "python", "yaml"}
    assert all(b.use or printed_commands(b) for b in blocks() if b.language in ("sh", "text"))


def test_files_that_commands_name_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    line = next(t for b in blocks() for t in b.text.splitlines() if "--trace" in t)
    assert main(shlex.split(line)[1:]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step.json.gz", "step.png"]


def test_the_job_loads(tmp_path: Path):
    (job,) = (block for block in blocks() if block.use == "job")
    path = tmp_path / "job.yaml"
    path.write_text(job.text)
    assert load_job(path).plan.n_devices == 512


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/howto.md",
        "docs/faq.md",
        "docs/comparison.md",
        *PAGES[1:],
        *TUTORIALS,
        "docs/method.md",
        "docs/glossary.md",
        "docs/benchmarks.md",
        "docs/decisions/index.md",
        "docs/extending.md",
        "docs/models.md",
        "docs/job_file.md",
        "docs/job_table.md",
    ],
)
def test_links_lead_to_files(page: str):
    file = ROOT / page
    for target in LINK.findall(file.read_text(encoding="utf-8")):
        assert (file.parent / target.split("#")[0]).exists(), target
