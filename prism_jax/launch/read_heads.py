"""Reads the head of a training log: what a trainer prints of its own job before its steps, line by line.

A head is pairs of a name and a value, wherever they stand in a line: what torchrun, Slurm, pdsh or Ray puts in front does not
matter, colours are taken away, and a value that was wrapped to the next line is joined. `log_trainers` lists what trainers write
in sentences. A new block of arguments, or another start after steps, is another run. Lines are read once and nothing is kept but
the pairs, so logs of any size take the same memory; nothing is evaluated.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from pathlib import Path

from ..recorded.formats.labelled import read_line
from ..tables.streams import lines
from .config_blocks import Blocks
from .head import LONGEST_VALUE, MOST_NAMES, Head, SaidValue
from .log_trainers import BEGINS, OPENERS, SAID
from .said import TIMED, Begin
from .shell_values import MARKS

MOST_RUNS = 100
MOST_TIMES = 100_000  # of a part
LONGEST_LINE = 20_000  # characters that are looked at
NOISE = re.compile(
    rf"(?:\x1b|\^\[)\[[0-9;]{{0,24}}m|{MARKS.pattern}"
)  # colours; marks of open values are none in a log
_STEP = re.compile(
    rb"\biteration:? +\d+ ?/|\bstep(?:\x1b\[[0-9;]*m)?[:= ] {0,8}\d|\| step +\d|completed step:|train_time:"
)
_BAR = re.compile(rb"\d/(?:\d{1,9}|\?) {1,2}\[\d")
_FIRST = re.compile(r"-{5,60} arguments -{5,60}")
_LAST = re.compile(r"-{5,60} end of arguments -{5,60}")
_ARGUMENT = re.compile(r"(?:^|[\s:\]>])([A-Za-z]\w{0,100}) {1,2}\.{2,120}(?: (.*))?$")
_ORIGIN = re.compile(r"\.{1,64}(?:default|updated)$")  # GPT-NeoX says of every value whether it is its own
_WRAPPED = re.compile(r"^(?:[\w.\[\]@-]{0,60}:)?(?:\s{0,3}\[[\w ]{1,20}\]:)?[\s.]{0,120}(\S.*)$")
_PRINTED = re.compile(r"\[config\.py:\d{1,6}:print(?:_\w{1,40})?\] {1,4}([a-z_]\w{0,80}) (?: |\.{2,60} )(.*)$")
_PARAM = re.compile(r"\bConfig param (\w{1,80}): (.*)$")
_HOST = re.compile(r"^([A-Za-z][\w-]{0,60}(?:\.[\w-]{1,60}){0,6}|\d{1,3}(?:\.\d{1,3}){3}): ")


def read_heads(path: Path) -> list[Head]:
    """Heads of the runs in a log, in order; of a file without any, one that is empty.

    Raises:
        DataError: the file cannot be read.
    """
    reader = _Reader()
    last = 0
    for number, line in lines(path, cut=True):
        reader.take(line, number)
        last = number
    return reader.done(last)


def _any_of(needles: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(needle) for needle in sorted(set(needles))))


ENOUGH_STEPS = 2000  # lines next to steps that are looked at for memory and rates
_OF_BLOCKS = (b" ..", b"[config.py:", b"Config param", b'": ', b"': ", b"onfig", b"Arguments(", b"json = {")
BETWEEN = _any_of([b"arguments ---", *TIMED, *(one.needle for one in BEGINS if one.starts_run)])
BESIDE = _any_of([b"arguments ---", b"max ", b"memory: ", b"TFLOP", *TIMED, *(one.needle for one in BEGINS)])
BEFORE = _any_of(
    [
        b"arguments ---",
        *_OF_BLOCKS,
        *(needle for one in SAID for needle in one.needles),
        *(one.needle for one in BEGINS),
    ]
)


def _is_bar(line: bytes) -> bool:
    """Whether a line is a bar of training: those of loading, tokenizing and mapping are none."""
    return _BAR.search(line) is not None and read_line(line[:LONGEST_LINE].decode("utf-8", "replace")).series not in (
        "",
        "other",
    )


class _Reader:
    """Takes lines of a log."""

    def __init__(self) -> None:
        self.heads = [Head()]
        self.in_block = False
        self.has_steps = False
        self.waiting = ""  # an argument whose value was wrapped
        self.n_after = 0  # lines that were looked at since the steps began
        self.blocks = Blocks(OPENERS)

    def take(self, line: bytes, number: int) -> None:
        """Reads a line."""
        if not self.has_steps and (_STEP.search(line) or _is_bar(line)):
            self.has_steps, self.in_block, self.n_after = True, False, 0
        if not (self.waiting or self._needles().search(line)) and not (self.blocks.is_open and not self.has_steps):
            return
        self.n_after += self.has_steps
        text = NOISE.sub("", line[:LONGEST_LINE].decode("utf-8", "replace")).rstrip()
        if self.waiting:
            self._wrapped(text, number)
        if _FIRST.search(text):
            self._begin_block(number)
        elif _LAST.search(text):
            self.in_block = False
        elif self.in_block and (found := _ARGUMENT.search(text)) is not None:
            self._argument(found, number)
            self.heads[-1].has_hosts |= _HOST.match(text) is not None
        else:
            self._sentence(line, text, number)

    def _needles(self) -> re.Pattern[bytes]:
        """Pattern of lines that may state something: once steps are there, ever less is looked for."""
        return BEFORE if not self.has_steps else BESIDE if self.n_after < ENOUGH_STEPS else BETWEEN

    def done(self, last: int) -> list[Head]:
        """All runs, once the log is read."""
        self.heads[-1].last_line = last
        return self.heads

    def _begin_block(self, number: int) -> None:
        if self.has_steps or self.heads[-1].arguments:
            self._cut(number)
        self.in_block = True
        self.heads[-1].arguments = {}
        self.heads[-1].params = {}

    def _cut(self, number: int) -> None:
        before = self.heads[-1]
        kept = {name: value for name, value in before.facts.items() if name in OF_MACHINE}
        if not self.has_steps:  # what stands before the block is of its run
            kept = before.facts
        if len(self.heads) < MOST_RUNS:
            if self.has_steps:
                before.last_line = number - 1
                self.heads.append(Head(first_line=number))
            else:
                self.heads[-1] = Head(first_line=before.first_line)
        else:
            self.heads[-1] = Head(first_line=number)
        self.heads[-1].facts = dict(kept)
        self.heads[-1].hosts = before.hosts
        self.heads[-1].most = {name: value for name, value in before.most.items() if name == "most_gpu_index"}
        self.has_steps = False

    def _argument(self, found: re.Match[str], number: int) -> None:
        name, text = found[1], found[2]
        if text is None:
            self.waiting = name
        self._keep(self.heads[-1].arguments, name, _ORIGIN.sub("", text or ""), number)

    def _wrapped(self, text: str, number: int) -> None:
        name, self.waiting = self.waiting, ""
        if _ARGUMENT.search(text) or _LAST.search(text):
            return
        found = _WRAPPED.match(text)
        if found is not None:
            self._keep(self.heads[-1].arguments, name, found[1], number)

    def _keep(self, into: dict[str, SaidValue], name: str, text: str, number: int) -> None:
        if len(into) < MOST_NAMES or name in into:
            into[name] = SaidValue(text.strip()[:LONGEST_VALUE], number, name)

    def _sentence(self, line: bytes, text: str, number: int) -> None:
        head = self.heads[-1]
        for one in BEGINS:
            if one.needle in line and one.pattern.search(text):
                self._begin(one, number)
                head = self.heads[-1]
        self._configuration(text, number)
        if (host := _HOST.match(text)) is not None and len(head.hosts) < MOST_NAMES:
            head.hosts.add(host[1])
        for one in SAID:
            if any(needle in line for needle in one.needles):
                for name, value in one.read(text):
                    self._say(head, name, value, number)

    def _configuration(self, text: str, number: int) -> None:
        """Pairs of a configuration that is printed one by one, or over several lines."""
        head = self.heads[-1]
        if (param := _PARAM.search(text)) is not None:
            self._keep(head.arguments, param[1], param[2], number)
        for name, value in self.blocks.pairs(text):
            if name not in head.facts or not self.has_steps:
                self._keep(head.facts, name, value, number)
        if (printed := _PRINTED.search(text)) is not None:
            self._keep(head.engine, printed[1], printed[2].lstrip(". "), number)

    def _begin(self, one: Begin, number: int) -> None:
        if one.starts_run and self.has_steps:
            self._cut(number)
        head = self.heads[-1]
        if one.trainer and (not head.trainer or one.overrules):
            head.trainer = one.trainer

    def _say(self, head: Head, name: str, value: str, number: int) -> None:
        if name == "params":
            tensor, pipeline, count = value.split()
            if len(head.params) < MOST_NAMES:
                head.params[int(tensor), int(pipeline)] = SaidValue(count, number, "number of parameters")
        elif name.startswith("most_"):
            head.most[name] = max(head.most.get(name, 0.0), float(value))
        elif name.startswith("timer_"):
            found = head.timers.setdefault(name.removeprefix("timer_"), array("d"))
            if len(found) < MOST_TIMES:
                found.append(float(value))
        elif name not in head.facts or name not in FIRST_COUNTS:
            self._keep(head.facts, name, value, number)


OF_MACHINE = ("gpu", "gpu_memory", "gpu_watts")
FIRST_COUNTS = ("gpu", "launched")
