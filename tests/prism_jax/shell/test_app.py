"""The command line: exit codes, streams, what is imported, and what becomes of errors."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from prism_jax.core.errors import PlanError
from prism_jax.shell.app import main
from prism_jax.shell.catalogue import COMMANDS, EARLIER_NAMES, Command
from prism_jax.show.catalogues import CATALOGUES

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"jax", "jaxlib", "equinox", "numpyro", "optax", "pandas", "pyarrow", "matplotlib", "scipy.stats", "inference"}
JOB = """\
model: llama-2-7b
cluster: dgx-h100
plan: {micro_batch: 1, global_batch: 64, seq_len: 4096, tp: 2, pp: 4, dp: 8}
variability: none
"""


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


@pytest.fixture
def failing():
    """A command `fail` that raises what it is given."""

    with ExitStack() as known:

        def add(error):
            def fail() -> None:
                raise error

            known.enter_context(COMMANDS.with_item(Command("fail", fail, "Fail.")))

        yield add


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["show", "--help"], ["check", "--help"]])
def test_help_is_shown_on_stdout(arguments, capsys):
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "Usage: prism-jax" in captured.out
    assert captured.err == ""


def test_commands_are_listed_in_groups(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    listed = {}
    for heading, box in re.findall(r"╭─ (.*?) ─+╮\n(.*?)╰", text, re.DOTALL):
        listed[heading] = re.findall(r"^│ (\S+)  ", box, re.MULTILINE)
    listed.pop("Options")
    assert listed == {
        "Predict": ["predict", "compare", "sweep", "scale"],
        "Decide": ["search", "capacity", "cloud", "run", "place", "export", "shard", "queue"],
        "From recordings": ["trace", "watch", "slowdowns"],
        "Calibrate": ["calibrate", "measure", "fit", "validate"],
        "Bring in": ["init", "import", "capture"],
        "Look up": ["serve", "report", "check", "show", "doctor"],
    }


@pytest.mark.parametrize(("earlier", "name"), EARLIER_NAMES.items())
def test_a_command_is_still_known_by_its_earlier_name(earlier, name, capsys):
    """The same page, the same answer and the same messages; nothing lists the earlier name."""
    for words in (["--help"], ["absent.yaml"], ["--no-such"], []):
        code = main([name, *words])
        told = capsys.readouterr()
        assert main([earlier, *words]) == code
        assert capsys.readouterr() == told


def test_completion_knows_the_present_names_alone(capsys, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert main(["--show-completion"]) == 0
    known = re.search(r"all_commands='(.*)'", capsys.readouterr().out)
    assert known is not None
    assert {*EARLIER_NAMES.values(), "predict", "what-if"} <= {*known[1].split()}
    assert not {*EARLIER_NAMES} & {*known[1].split()}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_options(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert main(["--show-completion"]) == 0
    (tmp_path / "completion").write_text(capsys.readouterr().out)

    def offered(*words: str) -> set[str]:
        typed = " ".join(f"'{word}'" for word in words)
        told = f'COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _prism_jax; echo "${{COMPREPLY[@]}}"'
        code = f"source {tmp_path / 'completion'}; {told}"
        return {*subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()}

    assert offered("prism-jax", "ca") == {"capacity", "calibrate", "capture"}
    assert {"--seed", "--set"} <= offered("prism-jax", "predict", "job.yaml", "--json", "--se")
    assert offered("prism-jax", "trace", "wh") == {"what-if"}


@pytest.mark.parametrize(
    "arguments", [["chek"], ["check"], ["check", "a", "b"], ["check", "a", "--st", "x=1"], ["show"], ["-z"]]
)
def test_wrong_usage_exits_with_2_and_says_so_on_stderr(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage" in captured.err or "Error" in captured.err


QUICK = ["--help", "--version", "predict --help", "check job.yaml", "check job.yaml --json"]
QUICK += [f"show {kind}" for kind in CATALOGUES]
ABSENT = ["predict absent.yaml", "check absent.yaml", "search job.yaml --method absent.yaml"]


def test_quick_commands_import_nothing_heavy(job):
    """One process runs them all: what one of them imports stays."""
    code = (
        "import sys; from prism_jax.shell.app import main\n"
        "for words in sys.argv[1:]: print(main(words.split()), words, *sys.modules, sep='|', file=sys.stderr)"
    )
    environment, folder = os.environ | {"PYTHONPATH": str(ROOT)}, Path(job).parent
    command = [sys.executable, "-c", code, *QUICK, *ABSENT]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    told = [line.split("|") for line in done.stderr.splitlines() if "|prism_jax|" in line]
    assert [one[:2] for one in told] == [["0", words] for words in QUICK] + [["2", words] for words in ABSENT]
    for _, words, *modules in told:
        assert set(modules) & HEAVY == set(), words


def test_user_mistake_is_one_message_and_exit_2(failing, capsys):
    failing(PlanError("tp = 3, but hidden = 8. Try tp=2."))
    assert main(["fail"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: tp = 3, but hidden = 8. Try tp=2.\n"


def test_unexpected_error_is_one_line_and_exit_1(failing, capsys):
    failing(RuntimeError("two\nlines"))
    assert main(["fail"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "RuntimeError: two lines" in captured.err
    assert "--debug" in captured.err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 745. GiB for an array with shape (100000000000,)"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4294967296 bytes."),
        RuntimeError("can't start new thread"),
        ImportError("libjax_common.so: failed to map segment from shared object"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_no_memory_is_said_as_that(failing, capsys, error):
    failing(error)
    assert main(["fail"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("error: out of memory: ")
    assert text.count("\n") == 1
    assert "bug" not in text


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("Key backend: 'nonsense' is not a valid value", 2, "The environment sets MPLBACKEND=nonsense"),
        ("something else", 1, "a bug"),
    ],
)
def test_a_backend_of_matplotlib_that_is_not_there_is_no_bug(text, code, said, failing, capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    failing(ValueError(text))
    assert main(["fail"]) == code
    assert said in capsys.readouterr().err


def test_a_folder_that_was_removed_and_links_that_lead_nowhere_are_told(tmp_path, capsys, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["check", "job.yaml"]) == 2
    assert capsys.readouterr().err.startswith("job.yaml: no such file")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert main(["check", "loop.yaml"]) == 2
    assert capsys.readouterr().err == "loop.yaml: a link that leads nowhere. Name the file itself.\n"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file whose reading fails")
def test_a_file_whose_reading_fails_is_named(capsys):
    assert main(["check", "/proc/self/mem"]) == 2
    assert capsys.readouterr().err.startswith("/proc/self/mem: cannot be read: Input/output error")


@pytest.mark.parametrize(
    "command", [["predict"], ["search"], ["scale", "--gpus", "16"], ["sweep", "--set", "plan.tp=1,2"]]
)
def test_a_limit_in_which_libraries_would_abort_is_refused(command, job, capsys, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**9, 10**9))
    assert main([command[0], job, *command[1:]]) == 2
    assert "1 GB of addresses (ulimit -v), but JAX and its threads need 2 GB" in capsys.readouterr().err
    assert main(["check", job]) == 0


def test_what_the_environment_asks_of_jax_is_no_bug(failing, capsys, monkeypatch):
    monkeypatch.setenv("JAX_TRANSFER_GUARD", "disallow")
    failing(RuntimeError("Disallowed host-to-device transfer"))
    assert main(["fail"]) == 2
    text = capsys.readouterr().err
    assert "The environment sets JAX_TRANSFER_GUARD=disallow" in text
    assert "Unset it" in text
    assert "a bug" not in text


def computed(**environment: str) -> tuple[str, str]:
    """What a process prints that starts JAX as the package does and computes 3, with these settings of both alone."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "PRISM_JAX_"))}
    code = "from prism_jax.core.processes import start_jax; start_jax(); import jax; print(jax.jit(lambda x: x + 1)(2))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=own | environment, check=True
    )
    return done.stdout, done.stderr


def test_a_shell_that_asks_for_a_gpu_that_is_not_there_computes_all_the_same():
    assert computed(JAX_PLATFORMS="cuda")[0] == "3\n"


def test_a_cache_that_cannot_be_used_is_no_news(tmp_path):
    """JAX warns of it once for every program that it compiles."""
    (tmp_path / "file").touch()
    always = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}
    assert computed(PRISM_JAX_CACHE=str(tmp_path / "file"), **always) == ("3\n", "")


def test_programs_are_kept_where_nobody_else_writes(tmp_path):
    """However short they took to compile. Our own folder is closed; one that the user names, or of another, is left alone."""

    def kept(folder: Path, variable: str = "PRISM_JAX_CACHE", inside: str = "") -> int:
        assert computed(**{variable: str(folder), "JAX_PLATFORMS": "cpu"}) == ("3\n", "")
        return len([*(folder / inside).iterdir()])

    new, open_to_all, foreign = tmp_path / "of" / "mine", tmp_path / "open", tmp_path / "foreign"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert kept(new) > 0
    assert kept(open_to_all) == 0
    assert (new.stat().st_mode & 0o777, open_to_all.stat().st_mode & 0o777) == (0o700, 0o777)
    usual = tmp_path / "prism-jax" / "jax"
    usual.mkdir(parents=True)
    usual.chmod(0o775)
    assert kept(tmp_path, "XDG_CACHE_HOME", "prism-jax/jax") > 0
    assert usual.stat().st_mode & 0o777 == 0o755
    foreign.mkdir()
    if os.getuid() == 0:  # nobody else can give a folder away
        os.chown(foreign, 12345, -1)
        assert kept(foreign) == 0


def test_interrupt_exits_with_130_and_no_traceback(failing, capsys):
    failing(KeyboardInterrupt())
    assert main(["fail"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_debug_shows_the_traceback_before_the_message(tmp_path, capsys):
    assert main(["check", str(tmp_path / "absent.yaml"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "absent.yaml")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_reader_that_stops_early_is_no_error(job):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    code = "import sys; from prism_jax.shell.app import main; sys.exit(main(['show', 'models', '--json']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert errors == ""


def test_a_writer_of_reports_can_read_the_json(job, capsys):
    assert main(["check", job, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_devices"] == 64
