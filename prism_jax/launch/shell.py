"""Follows a shell script without running it: which command lines it would start, as far as their words are known.

The script is parsed by the grammar of bash of tree-sitter. Assignments, arrays, expansions, integer arithmetic, `if`, `case`,
loops, functions, `source`, `eval` and scripts that are started are followed where their values are known. A value that is not
(a positional argument that nobody gave, a variable of the environment, the output of a command) is kept as an open value with its
name and line, inside of whatever text it goes into. Where a condition is open, both ways are followed, and what they leave unlike
is open, too. Nothing is executed, and nothing outside of the folder of the script is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..core.errors import DataError
from ..core.read_file import read_text
from .shell_script import MOST_BYTES, REMEDY, ShellCommand, ShellScript
from .shell_values import (
    LAST_MARK,
    MARKS,
    ShellState,
    ShellValues,
    ShellWord,
    Value,
    formatted,
    is_open,
    listed,
    text_of,
)

_BARE = re.compile(r"\$([A-Za-z_]\w*|\d)")
MOST_STEPS = 200_000  # statements that are followed
MOST_COMMANDS = 5_000
MOST_FILES = 50  # that a script writes
MOST_TEXT = 1 << 20  # characters of a value
MOST_ITEMS = 5_000  # of an array
DEEPEST = 60  # statements inside each other, sourced files and calls included
MOST_ROUNDS = 1_000  # of a loop whose condition stays known


def follow(
    path: Path,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    from_directives: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> ShellScript:
    """Follows a script.

    Args:
        arguments: positional arguments, $1 and on.
        environment: variables that are set around it.
        from_directives: variables that the scheduler sets -> the option of `#SBATCH` that says them.
        root: folder below which files may be sourced; None: that of the script.

    Raises:
        DataError: the file cannot be read, is no script of bash, or does not end.
    """
    found = ShellScript()
    text = found.read(path)
    said = found.of_directives(from_directives or {})
    around = {**said, **(environment or {})}
    state = ShellState({"BASH_SOURCE": [path.name], **around}, [path.name, *arguments], exported=set(around))
    _Follower(found, path, root, from_directives or {}).run(MARKS.sub("", text), state)
    return found


_STEP = re.compile(r"(\w+)(\+\+|--|\+=|-=)(\d{1,6})?")
_LINE = re.compile(r"\s.*--\w")
_CARRIERS = (
    "ssh", "pdsh", "srun", "tmux", "screen", "docker", "podman", "kubectl", "singularity", "apptainer", "nohup",
    "timeout",
)  # fmt: skip
_SHELLS = ("bash", "sh")
_STARTERS = (*_CARRIERS, *_SHELLS, "exec", "sbatch", "mpirun", "env", "time")  # in front of a script that is started
SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".srun", ".pbs")


class _Follower(ShellValues):
    """Follows the statements of one file and of those that it sources."""

    def __init__(self, found: ShellScript, path: Path, root: Path | None, from_directives: Mapping[str, str]) -> None:
        super().__init__()
        self.tops = [path.parent.resolve(), *([root.resolve()] if root else [])]
        self.found, self.path, self.steps, self.depth, self.open = found, path, 0, 0, found.open
        self.from_directives = from_directives
        self.starter: tuple[ShellWord, ...] = ()  # words in front of the script that is followed

    def run(self, text: str, state: ShellState, first_line: int = 0) -> None:
        """Follows a text; lines are counted from `first_line`.

        Raises:
            DataError: it is no script of bash, or does not end.
        """
        from tree_sitter import Language, Parser
        from tree_sitter_bash import language

        tree = Parser(Language(language())).parse(text.encode())
        before, self.first_line = self.first_line, first_line
        self._all(tree.root_node.children, state)
        self.first_line = before

    def _all(self, nodes: Sequence[Any], state: ShellState) -> None:
        for node in nodes:
            self._one(node, state)

    def _one(self, node: Any, state: ShellState) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS or self.depth > DEEPEST:
            raise DataError(
                f"{self.path}: line {self.line(node)}: the script goes round in circles, or nests too deep, to be followed. "
                f"{REMEDY}"
            )
        self.depth += 1
        if (follow_statement := _STATEMENTS.get(node.type)) is not None:
            follow_statement(self, node, state)
        elif node.type in _CONTAINERS:
            self._all(node.named_children, state)
        self.depth -= 1

    # --- Statements

    def _variable_assignment(self, node: Any, state: ShellState) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            return
        key = text_of(name)
        if value is not None and value.type == "array":
            items = (child for child in value.named_children if child.type != "comment")
            new: Value = [word.text for child in items for word in self.words(child, state)]
        else:
            new = "" if value is None else self.text(value, state)
        if any(child.type == "+=" for child in node.children):
            old = state.variables.get(key, "")
            if isinstance(old, list) or isinstance(new, list):
                new = [*listed(old), *listed(new)]
            else:
                new = old + new
        self.steps += len(new) // 4 if isinstance(new, list) else len(new) // 10_000
        state.variables[key] = new[:MOST_ITEMS] if isinstance(new, list) else new[:MOST_TEXT]

    def _declaration_command(self, node: Any, state: ShellState) -> None:
        names: list[Any] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._variable_assignment(child, state)
                names.append(child.child_by_field_name("name"))
            elif child.type == "variable_name":
                names.append(child)
        if node.children[0].type == "export":
            state.exported |= {text_of(name) for name in names}

    def _if_statement(self, node: Any, state: ShellState) -> None:
        ways: list[ShellState] = []
        n_used = len(self.used)
        for condition, body in _branches(node):
            known = True if condition is None else self.holds(condition, state)
            if known is False:
                continue
            way = state if known and not ways else state.copy()
            self._all(body, way)
            if known and not ways:
                return
            ways.append(way)
            if known:
                break
        else:
            ways.append(state.copy())
        state.take(ways, self._undecided(node, n_used))

    def _undecided(self, node: Any, n_used: int) -> Callable[[str], str]:
        """Marks a variable that a statement leaves open: by what its condition depends on, where that is known."""
        asked = self.used[n_used : n_used + 1]
        by, line = (asked[0].name, asked[0].line) if asked else ("", self.line(node))
        return lambda name: self.open.mark(by or name, line, is_undecided=True)

    def _case_statement(self, node: Any, state: ShellState) -> None:
        n_used = len(self.used)
        value = self.text(node.child_by_field_name("value"), state)
        ways: list[ShellState] = []
        for item in (child for child in node.named_children if child.type == "case_item"):
            patterns = item.children_by_field_name("value")
            body = [child for child in item.named_children if child not in patterns]
            if is_open(value):
                ways.append(state.copy())
                self._all(body, ways[-1])
            elif any(fnmatchcase(value, self.text(one, state)) for one in patterns):
                self._all(body, state)
                return
        if ways:
            state.take([*ways, state.copy()], self._undecided(node, n_used))

    def _for_statement(self, node: Any, state: ShellState) -> None:
        name = text_of(node.child_by_field_name("variable"))
        values = [word.text for one in node.children_by_field_name("value") for word in self.words(one, state)]
        body = node.child_by_field_name("body")
        if len(values) == 1 and not is_open(values[0]):
            state.variables[name] = values[0]
        else:
            state.variables[name] = self.open.mark(name, self.line(node))
        self._one(body, state)

    def _c_style_for_statement(self, node: Any, state: ShellState) -> None:
        first, condition, update, body = map(node.child_by_field_name, ("initializer", "condition", "update", "body"))
        name = text_of(first.child_by_field_name("name")) if first is not None else ""
        step = _STEP.fullmatch(text_of(update))
        if first is None or first.type != "variable_assignment" or condition is None or step is None or step[1] != name:
            self._one(body, state)
            return
        self._variable_assignment(first, state)
        for _ in range(MOST_ROUNDS):
            known, at = self._number(condition, state), state.variables.get(name)
            if known is None or not isinstance(at, str) or not at.isdecimal():
                state.variables[name] = self.open.mark(name, self.line(node))
                self._one(body, state)
                return
            if not known:
                return
            self._one(body, state)
            state.variables[name] = str(int(at) + int(step[3] or 1) * (-1 if step[2].startswith("-") else 1))

    def _while_statement(self, node: Any, state: ShellState) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        for _ in range(MOST_ROUNDS):
            known = self.holds(condition, state)
            if known is False:
                return
            before = (dict(state.variables), list(state.positional))
            self._one(body, state)
            if known is None or before == (state.variables, state.positional):
                return

    def _function_definition(self, node: Any, state: ShellState) -> None:
        state.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")

    def _redirected_statement(self, node: Any, state: ShellState) -> None:
        redirects = [child for child in node.named_children if child.type.endswith("_redirect")]
        self._keep_file(redirects, state)
        body = node.child_by_field_name("body") or node.named_children[0]
        bodies = [child for one in redirects for child in one.named_children if child.type == "heredoc_body"]
        if body.type != "command":
            self._one(body, state)
        elif bodies and text_of(body.child_by_field_name("name")) == "read":
            self._read(text_of(body.named_children[-1]), bodies[0], state)
        else:  # words may go on behind a redirection: `train.py > log 2>&1 --bf16`
            named = ([child for child in one.named_children if child.type != "file_descriptor"] for one in redirects)
            self._command(
                body, state, [word for children in named for word in children[1:] if word.type != "heredoc_body"]
            )

    def _keep_file(self, redirects: Sequence[Any], state: ShellState) -> None:
        """Keeps the text of `cat > FILE <<EOF`."""
        here = next((one for one in redirects if one.type == "heredoc_redirect"), None)
        inner = here.named_children if here is not None else []
        place = next((one for one in (*redirects, *inner) if one.type == "file_redirect"), None)
        body = next((one for one in inner if one.type == "heredoc_body"), None)
        if place is not None and body is not None and len(self.found.files) < MOST_FILES:
            is_raw = text_of(inner[0])[:1] in ("'", '"', "\\")
            name = self.text(place.child_by_field_name("destination"), state)
            self.found.files[self.open.shown(name)] = text_of(body) if is_raw else self.body(body, state)

    def _list(self, node: Any, state: ShellState) -> None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
        n_used = len(self.used)
        known = self.holds(left, state)
        self._one(left, state)
        if known is None and self._is_test(left, state):
            way = state.copy()
            self._one(right, way)
            state.take([way, state.copy()], self._undecided(node, n_used))
        elif known is None or known is (operator == "&&"):  # other commands are taken to succeed
            self._one(right, state)

    def _is_test(self, node: Any, state: ShellState) -> bool:
        """Whether a node is a condition, and no command that does something."""
        if node.type == "list":
            return self._is_test(node.named_children[-1], state)
        is_command = node.type == "command" and text_of(node.child_by_field_name("name")) in ("test", "[")
        return is_command or node.type in ("test_command", "negated_command")

    def _subshell(self, node: Any, state: ShellState) -> None:
        self._all(node.named_children, state.copy())

    def _read(self, name: str, body: Any, state: ShellState) -> None:
        """`read -d '' NAME <<EOF`: its text is a string in double quotes, or as it stands behind `<<'EOF'`."""
        text, before = text_of(body).strip("\n"), body.prev_named_sibling
        if not name.isidentifier():
            return
        if before is not None and text_of(before)[:1] in ("'", '"', "\\"):
            state.variables[name] = text[:MOST_TEXT]
        else:
            quoted = text.replace('"', '\\"')
            self.run(f'{name}="{quoted}"', state, self.line(body) - 1)

    def _command(self, node: Any, state: ShellState, behind: Sequence[Any] = ()) -> None:
        if any(one.end_byte == two.start_byte for one, two in pairwise(node.named_children)):
            whole = _BARE.sub(r"${\1}", text_of(node))  # A=x/$B/$C/y_$D, which the grammar takes apart
            if whole != text_of(node):
                self.run(whole, state, self.line(node) - 1)
                return
        has_own = any(child.type == "variable_assignment" for child in node.named_children)
        keeps = text_of(node.child_by_field_name("name")) in (
            "source",
            ".",
            "eval",
        )  # those set variables of the script
        inner = state.copy() if has_own and not keeps else state
        words: list[ShellWord] = []
        for child in (*node.named_children, *behind):
            if child.type == "variable_assignment":
                self._variable_assignment(child, inner)
                inner.exported.add(text_of(child.child_by_field_name("name")))
            elif child.type == "command_name":
                words += self.words(child.named_children[0], state) if child.named_children else []
            elif child.type not in (
                "comment",
                "herestring_redirect",
                "file_redirect",
                "heredoc_redirect",
                "heredoc_end",
            ):
                words += self.words(child, state)
        if words:
            self._call(words, self.line(node), inner)

    def _call(self, words: list[ShellWord], line: int, state: ShellState) -> None:
        name = words[0].text
        if (built_in := _BUILT_INS.get(name)) is not None:
            built_in(self, [word.text for word in words[1:]], line, state)
        elif name in state.functions:
            outer = state.positional
            state.positional = [outer[0], *(word.text for word in words[1:])]
            self._one(state.functions[name], state)
            state.positional = outer
        elif name in ("bash", "sh") and len(words) > 2 and words[1].text in ("-c", "-lc"):
            self.run(_one_line(words[2].text), state, line - 1)
        elif len(self.found.commands) < MOST_COMMANDS:
            self._start(words, line, state)

    def _start(self, words: list[ShellWord], line: int, state: ShellState) -> None:
        """Follows what a command line starts in another shell, or keeps it."""
        name = words[0].text.rpartition("/")[2]
        inside = next((at + 1 for at, word in enumerate(words) if at and word.text in ("-c", "-lc")), len(words))
        if inside < len(words) and words[inside - 2].text in _SHELLS:
            self.run(_one_line(words[inside].text), state, line - 1)
        elif name in _CARRIERS:
            for word in words[1:]:
                if _LINE.search(word.text):  # a command line in one word, for another machine
                    self.run(_one_line(word.text), state, line - 1)
        at = next((at for at, word in enumerate(words) if word.text.endswith(SUFFIXES)), len(words))
        if (at == 0 or (at < len(words) and name in _STARTERS)) and self._script(words, at, line, state):
            return
        known = {name: value for name, value in state.variables.items() if isinstance(value, str)}
        self.found.commands.append(ShellCommand((*self.starter, *words), line, known))

    def _script(self, words: list[ShellWord], at: int, line: int, state: ShellState) -> bool:
        """Follows the script that word `at` names, in a shell of its own; False: it is not there."""
        named = words[at].text
        text, file, first_line = self.found.files.get(self.open.shown(named)), self._file(named), line - 1
        before, starter = self.path, self.starter
        if text is None and file is not None:
            self.path, text, first_line = file, MARKS.sub("", self.found.read(file)), 0
            self.found.started.append(ShellWord(file.name, line))
        if text is None:
            return False
        everything = "*" in state.exported  # set -a
        around = {name: one for name, one in state.variables.items() if everything or name in state.exported}
        around = {"BASH_SOURCE": [self.path.name], **self.found.of_directives(self.from_directives), **around}
        own = ShellState(around, [self.path.name, *(word.text for word in words[at + 1 :])], exported=set(around))
        self.starter = (*starter, *(word for word in words[:at] if word.text not in (*_SHELLS, "exec")))
        self.run(text, own, first_line)
        self.path, self.starter = before, starter
        return True

    def _source(self, arguments: list[str], line: int, state: ShellState) -> None:
        named = arguments[0] if arguments else ""
        file = self._file(named)
        if file is None:
            self.found.missing.append(ShellWord(self.open.shown(named), line))
            return
        before, self.path = self.path, file
        self.run(MARKS.sub("", read_text(file, MOST_BYTES, REMEDY)), state)
        self.path = before

    def _file(self, named: str) -> Path | None:
        """The file of that name in the folder of the script or below the root; None where there is none."""
        tail = named.rpartition(LAST_MARK)[2].lstrip("/")  # "$(dirname $0)/x.sh": from the folder of the script
        files = [(folder / tail).resolve() for folder in (self.path.parent.resolve(), *self.tops)] if tail else []
        return next((one for one in files if one.is_file() and any(map(one.is_relative_to, self.tops))), None)

    def _eval(self, arguments: list[str], line: int, state: ShellState) -> None:
        self.run(" ".join(arguments), state, line - 1)

    def _shift(self, arguments: list[str], _line: int, state: ShellState) -> None:
        n = int(arguments[0]) if arguments and arguments[0].isdecimal() else 1
        state.positional[1 : 1 + n] = []

    def _set(self, arguments: list[str], _line: int, state: ShellState) -> None:
        if "-a" in arguments:
            state.exported.add("*")
        if "--" in arguments:
            state.positional[1:] = arguments[arguments.index("--") + 1 :]

    def _printf(self, arguments: list[str], line: int, state: ShellState) -> None:
        if arguments[:1] == ["-v"] and len(arguments) > 2:
            known = None if any(map(is_open, arguments)) else formatted(arguments[2:])
            state.variables[arguments[1]] = self.open.mark(arguments[1], line) if known is None else known

    def _nothing(self, _arguments: list[str], _line: int, _state: ShellState) -> None:
        """Commands that start no training and set nothing."""


def _one_line(text: str) -> str:
    """Joins lines that begin with an option to those in front: a string of arguments begins with a line break."""
    return _BROKEN.sub(" ", text)


_BROKEN = re.compile(r"\s*\n\s*(?=--\w)")
_STATEMENTS: Mapping[str, Callable[[_Follower, Any, ShellState], None]] = {
    "variable_assignment": _Follower._variable_assignment,
    "declaration_command": _Follower._declaration_command,
    "if_statement": _Follower._if_statement,
    "case_statement": _Follower._case_statement,
    "for_statement": _Follower._for_statement,
    "c_style_for_statement": _Follower._c_style_for_statement,
    "while_statement": _Follower._while_statement,
    "function_definition": _Follower._function_definition,
    "redirected_statement": _Follower._redirected_statement,
    "list": _Follower._list,
    "subshell": _Follower._subshell,
    "command": _Follower._command,
}
_CONTAINERS = (
    "program", "do_group", "compound_statement", "pipeline", "variable_assignments", "else_clause", "heredoc_body",
)  # fmt: skip
_BUILT_INS: Mapping[str, Callable[[_Follower, list[str], int, ShellState], None]] = {
    "source": _Follower._source,
    ".": _Follower._source,
    "eval": _Follower._eval,
    "shift": _Follower._shift,
    "set": _Follower._set,
    "printf": _Follower._printf,
    **dict.fromkeys(("echo", "cd", "mkdir", "exit", "return", "sleep", "let", "trap", "cp", "rm"), _Follower._nothing),
}


def _branches(node: Any) -> list[tuple[Any, list[Any]]]:
    """Conditions and bodies of an `if`; the condition of `else` is None."""
    condition = node.child_by_field_name("condition")
    clauses = [child for child in node.named_children if child.type in ("elif_clause", "else_clause")]
    body = [child for child in node.named_children if child not in clauses and child != condition]
    found: list[tuple[Any, list[Any]]] = [(condition, body)]
    for clause in clauses:
        children = clause.named_children
        if clause.type == "else_clause":
            found.append((None, children))
        else:
            found.append((children[0], children[1:]))
    return found
