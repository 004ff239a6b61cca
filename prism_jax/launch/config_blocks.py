"""Configurations that a log holds over several lines: JSON, arguments of a call, Python literals as `pprint` wraps them.

Lines of other ranks may stand between theirs, and lines may be missing. So a pair counts by itself, under the block that it is in
and the innermost name that was opened before it; nothing has to close. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

MOST_LINES = 3000  # of a block


class BlockOpener(NamedTuple):
    """A line that opens a block.

    Attributes:
        pattern: of the line.
        kind: in front of the names of the block.
        form: of its lines: json, call (arguments), literal (of Python), yaml, mixed (a mapping with calls in it).
        front: in place of `kind`, where names of several kinds are alike.
    """

    pattern: re.Pattern[str]
    kind: str
    form: str = "json"
    front: str = ""


OPENERS = (
    BlockOpener(re.compile(r"\b[Mm]odel config:?(?: ?\w{0,60}\(? ?\{|$)"), "config"),
    BlockOpener(re.compile(r"Building \S{1,60} \S{1,80} with \{"), "model_args"),
    BlockOpener(re.compile(r"Running with (?:args|configs?): \{\s*$"), "flag"),
    BlockOpener(re.compile(r"\bjson = \{"), "ds"),
    BlockOpener(re.compile(r"\baxolotl\..{1,200}\bconfig: ?\{?$"), "axolotl", front="training"),
    BlockOpener(re.compile(r"(?:^|\s)\{?'(?:actor_rollout_ref|algorithm|actor)': ?\{"), "verl", "literal"),
    BlockOpener(
        re.compile(r"\b\w{0,30}(?:Training|Sft|RLHF|Trainer|Train|Export)\w{0,20}(?:Arguments|Config)\((\w{1,60}=|$)"),
        "training",
        "call",
    ),
)
OF_OTHER_TOWERS = ("vision_config", "audio_config", "quantization_config")  # sizes that are not of the language model
_LIST = re.compile(r'"(fsdp)": \[')
_PAIR = re.compile(r'"(\w{1,80})": ("[^"]{0,300}"|[^\s,{}\[\]"]{1,80})')
_OPENED = re.compile(r'"(\w{1,80})": \{')
_CALL = re.compile(r"(?:^|[(\s,])(\w{1,80})=('[^']{0,300}'|\"[^\"]{0,300}\"|[^,\s()]{1,200})")
_YAML = re.compile(r"^( {0,60})([A-Za-z_]\w{0,80}):(?: (.{1,300}))?$")
_OF_MAPPING = re.compile(r"'(\w{1,60})': (?:PosixPath\()?('[^']{0,300}'|[^\s,{}()\[\]']{1,60})")
_LITERAL = re.compile(r"'(\w{1,80})': ?(\{|'[^']{0,300}'|[^\s,{}\[\]']{1,80}|\[[^\]]{0,200}\])")
_RAY = re.compile(r"^(?:\(\w{1,60}(?: \w{1,40})? pid=\d{1,9}(?:, ip=[\d.]{1,20})?\))? ?")
Pairs = Iterator[tuple[str, str]]


class Blocks:
    """The block that a reader is in, if any."""

    def __init__(self, openers: Sequence[BlockOpener] = OPENERS) -> None:
        self.openers, self.opener, self.left, self.inner = openers, openers[0], 0, ""
        self.names: list[tuple[int, str]] = []  # of literals and YAML: column and name, outermost first

    @property
    def is_open(self) -> bool:
        """Whether lines may belong to a block."""
        return self.left > 0

    def pairs(self, text: str) -> Pairs:
        """Names and values of a line, with the block in front: `ds.stage`, `verl.trainer.nnodes`."""
        begins = next((one for one in self.openers if one.pattern.search(text)), None)
        if begins is not None:
            self.opener, self.left, self.inner, self.names = begins, MOST_LINES, "", []
        if not self.is_open:
            return
        self.left -= 1
        yield from FORMS[self.opener.form](self, text)

    @property
    def _front(self) -> str:
        return self.opener.front or self.opener.kind

    def _json(self, text: str) -> Pairs:
        opened, front = _OPENED.search(text), self._front
        for one in _LIST.finditer(text):
            yield f"{front}.{one[1]}", "full_shard"
        for one in _PAIR.finditer(text):
            value = one[2].strip('"')
            if self.inner not in OF_OTHER_TOWERS:
                yield f"{front}.{one[1]}", value
            if self.inner:
                yield f"{front}.{self.inner}.{one[1]}", value
        if opened is not None:
            self.inner = opened[1]
        elif text.strip() in ("}", "},") and self.inner and text.startswith(" "):
            self.inner = ""
        elif text.strip() == "}" and not text.startswith(" "):
            self.left = 0

    def _call(self, text: str) -> Pairs:
        yield from self._of(text, _CALL)
        if text.strip() in (")", "),"):
            self.left = 0

    def _of(self, text: str, *patterns: re.Pattern[str]) -> Pairs:
        for one in (one for pattern in patterns for one in pattern.finditer(text[:20_000])):
            yield f"{self._front}.{one[1]}", one[2].strip("'\"")

    def _literal(self, text: str) -> Pairs:
        bare = _RAY.sub("", text)
        for one in _LITERAL.finditer(bare):
            path = self._below(one.start(), one[1])
            if one[2] == "{":
                self.names.append((one.start(), one[1]))
            else:
                yield f"{self._front}.{path}", one[2].strip("'")

    def _yaml(self, text: str) -> Pairs:
        found = _YAML.match(text.rstrip())
        if found is None:
            return
        column, name, value = len(found[1]), found[2], (found[3] or "").strip()
        path = self._below(column, name)
        if value:
            yield f"{self._front}.{path}", value.strip("'\"")
        else:
            self.names.append((column, name))

    def _below(self, column: int, name: str) -> str:
        """Dotted name of what stands at a column, under the names that stand further left above it."""
        while self.names and self.names[-1][0] >= column:
            self.names.pop()
        return ".".join([*(one for _, one in self.names), name])

    def _mixed(self, text: str) -> Pairs:
        """A mapping of Python with calls in it."""
        yield from self._of(text, _OF_MAPPING, _CALL)
        if text.rstrip().endswith("}"):
            self.left = 0


FORMS: Mapping[str, Callable[[Blocks, str], Pairs]] = {
    "json": Blocks._json,
    "call": Blocks._call,
    "literal": Blocks._literal,
    "yaml": Blocks._yaml,
    "mixed": Blocks._mixed,
}
