"""Command lines of a shell script that was followed, and what its text says without being followed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.read_file import read_text
from .shell_values import OpenValues, ShellWord

MOST_BYTES = 4 << 20  # of a script
REMEDY = "Give a script of bash, or import the log of its run."
_FLAG = re.compile(r"--([A-Za-z][\w-]{1,60})")
_SBATCH = re.compile(r"#SBATCH\s+(?:--([a-z-]+)|-([A-Za-z]))[=\s]\s*([^#]+)")


@dataclass(frozen=True)
class ShellCommand:
    """A command line that the script would start.

    Attributes:
        words: the command and its arguments.
        line: of the script.
        variables: variables at that point, by name; arrays are left out.
    """

    words: tuple[ShellWord, ...]
    line: int
    variables: Mapping[str, str]


@dataclass
class ShellScript:
    """Command lines and options of a script that was followed.

    Attributes:
        commands: in order; those of both ways of an open condition.
        directives: options of `#SBATCH` lines, by name.
        files: texts that it writes by here-documents, by name.
        flag_lines: lines on which `--name` stands, comments left out, by name with `_` for `-`.
        open: what it does not say.
        missing: files that it sources and that are not there or lie elsewhere, with lines.
        started: scripts of its folder that it starts and that were followed, with lines.
    """

    commands: list[ShellCommand] = field(default_factory=list)
    directives: dict[str, ShellWord] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    flag_lines: dict[str, list[ShellWord]] = field(default_factory=dict)
    missing: list[ShellWord] = field(default_factory=list)
    started: list[ShellWord] = field(default_factory=list)
    open: OpenValues = field(default_factory=OpenValues)

    def read(self, path: Path) -> str:
        """Returns the text of a script, and keeps its `#SBATCH` lines and the lines of its flags.

        Raises:
            DataError: the file cannot be read.
        """
        text = read_text(path, MOST_BYTES, REMEDY)
        for number, line in enumerate(text.splitlines(), start=1):
            for flag in _FLAG.findall(line) if "--" in line and not line.lstrip().startswith("#") else ():
                self.flag_lines.setdefault(flag.replace("-", "_"), []).append(ShellWord(line, number))
            if (said := _SBATCH.match(line)) is not None:
                name = {"N": "nodes", "n": "ntasks"}.get(said[2] or "", said[1] or said[2])
                self.directives[name] = ShellWord(said[3].split()[0], number)
        return text

    def of_directives(self, names: Mapping[str, str]) -> dict[str, str]:
        """Values of variables that the scheduler sets, by the options of `#SBATCH` that say them."""
        return {name: self.directives[one].text for name, one in names.items() if one in self.directives}
