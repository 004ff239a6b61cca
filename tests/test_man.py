"""Man pages: one for each command with all its options, in roff that groff takes without a warning."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from prism_jax.shell.catalogue import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "docs"))
man = import_module("man")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("man")
    man.write(folder)
    return {file.stem: file for file in folder.iterdir()}


def test_every_command_has_a_page_that_the_first_one_names(pages):
    names = {f"prism-jax-{command.name.replace(' ', '-')}" for command in COMMANDS}
    assert pages.keys() == {"prism-jax", *names}
    first = pages["prism-jax"].read_text().replace("\\-", "-")
    assert all(f"{name}(1)" in first for name in names)


def test_a_page_has_options_example_and_columns(pages):
    text = pages["prism-jax-predict"].read_text().replace("\\-", "-")
    assert "\\fB--set\\fR \\fIFIELD=VALUE\\fR\nReplace one field of the job" in text
    assert "\\fB--json\\fR\nPrint" in text  # a flag has no value
    assert re.search(
        r'THE JOB"(.|\n)*OPTIONS"(.|\n)*OUTPUT"(.|\n)*MESSAGES"(.|\n)*EXAMPLE\n.nf\nprism-jax predict', text
    )
    assert "COLUMNS OF A TABLE OF SLOWDOWNS" in text


def test_text_is_escaped():
    assert man.roff(".TH -a \\n") == "\\&.TH \\-a \\en"


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_takes_the_pages_without_a_warning(pages):
    command = ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", "-z", *map(str, pages.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
