"""Scripts are followed as bash would run them, as far as values are known, and nothing is run."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.launch import shell
from prism_jax.launch.launch_line import included_gpus
from prism_jax.launch.shell import follow
from prism_jax.launch.shell_script import ShellScript


def followed(text: str, folder: Path, *arguments: str, **variables: str) -> ShellScript:
    file = folder / "run.sh"
    file.write_text(text)
    return follow(file, arguments, variables)


def words(text: str, folder: Path, *arguments: str, **variables: str) -> list[str]:
    """Words of the last command line `show ...`, with names in place of open values."""
    script = followed(text, folder, *arguments, **variables)
    last = [command for command in script.commands if command.words[0].text == "show"][-1]
    return [script.open.shown(word.text) for word in last.words[1:]]


KNOWN = {
    "variable": "A=7; show $A ${A} \"$A\" '$A'",
    "default": 'show ${A:-3} ${B-4} ${C:=5} $C; D=; show ${D:-6} "${D-7}" ${A:-3}',
    "alternative": 'A=1; show "${A:+yes}" "x${B:+no}"',
    "words of a string": 'A="--x 1  --y 2"; show $A "$A"',
    "array": 'A=(--x 1 "two words"); A+=(--z); show "${A[@]}" ${A[@]} ${A[1]}',
    "comment in an array": "A=(--x 1 # --y 2\n--z 3)\nshow ${A[@]}",
    "arithmetic": "A=5; show $((A * 2 + 1)) $(( $A / 2 )) $((7 % 4)) $((2 ** 5)) $(( (1 + 2) * 3 ))",
    "signs": "A=5; show $((A > 3 ? 1 : 0)) $((-7 / 2)) $((-7 % 3)) $((A == 5 && A < 2))",
    "trimmed": "A=llama-7b.yaml; show ${A%.yaml} ${A#llama-} ${A%%-*} ${A##*-} ${A/7b/13b}",
    "continued": "show --x 1 \\\n  --y 2",
    "eval": 'A="show --x 1 --y \'two words\'"\neval $A\neval "show a b"',
    "if": 'A=8; if [ "$A" = 7 ]; then B=1; elif [[ $A -gt 7 && $A != 9 ]]; then B=2; else B=3; fi; show $B',
    "nested if": 'A=1; if [ -z "" ]; then if [ ! $A = 2 ]; then show a; fi; fi',
    "case": "A=7B; case $A in 13B) show a;; 7*|8B) show b;; *) show c;; esac",
    "and, or": 'A=; [ -n "$A" ] && B=1; [ -z "$A" ] || B=2; [[ x == x ]] && C=3; show "${B:-0}" $C',
    "function": 'f() { show "$1" $# "${2:-none}"; }; f a; f a "b c"',
    "shift": "while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; --flag) F=1; shift;; *) shift;; esac; done; show $TP $F",
    "positional": 'show $1 "${2}" "$#" ${9:-none}; show "$@"',
    "here": "show a <<EOF\nshow wrong\nEOF\nshow b",
    "read": "A=1; read -r -d '' B <<EOF\n--x $A \\\n  --y ${C:-7}\nEOF\nread -d '' D <<'EOF'\n--z $A\nEOF\nshow $B $D",
    "names side by side": "A=a; B=b; C=c; D=r/$A/$B/x_$C.yaml; show $D; E=$A/$B-$C.y show $D",
    "behind a redirection": "show a > /dev/stdout 2>&1 \\\n b c",
    "loop": "for i in one; do show $i; done",
    "escapes": 'show "a\\"b" a\\ b "\\$A" $\'x\\ty\'',
    "subshell": "A=1; (A=2; show $A); show $A",
    "prefix": "A=1; A=2 show a$A",
    "export": "export A=3 B=4; declare -i C=5; show $A$B$C",
    "read only": "readonly A=3; show $A",
    "plus": 'A=x; A+=y; A="$A z"; show $A',
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_words_are_those_of_bash(name: str, tmp_path: Path) -> None:
    """bash is the oracle: `show` prints its words, the last call counts."""
    text, arguments = KNOWN[name], ["--tp", "4", "--flag", "rest of it"]
    if name == "positional":
        arguments = ["p", "q r", "s"]
    oracle = 'show() { printf "%s\\n" "$#" "$@" > "$SHOWN"; }\n' + text
    shown = tmp_path / "shown"
    subprocess.run(["bash", "-c", oracle, "run.sh", *arguments], check=True, env=os.environ | {"SHOWN": str(shown)})
    n, *expected = shown.read_text().split("\n")[:-1]
    assert int(n) == len(expected)
    assert words(text, tmp_path, *arguments) == expected


OPEN = {
    "never set": ("show $A x", ["${A}", "x"]),
    "position": ('B=$1; show "$B"', ["${1}"]),
    "command": ("A=$(nproc); show $A $((A * 2))", ["${$(nproc)}", "${$((A * 2))}"]),
    "way": ("if [ $A = 1 ]; then B=2; else B=3; fi; show $B", ["${A}"]),
    "way of a case": ("case $1 in a) B=2;; b) B=3;; esac; show $B", ["${1}"]),
    "one way alone": ('[ -n "$A" ] && B=" --x"; show a $B', ["a", "${A}"]),
    "same both ways": ("if [ $A = 1 ]; then B=2; else B=2; fi; show $B", ["2"]),
    "loop": ("for i in 1 2; do show $i; done", ["${i}"]),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_values_say_what_they_depend_on(name: str, tmp_path: Path) -> None:
    text, expected = OPEN[name]
    assert words(text, tmp_path) == expected


def test_files_beside_the_script_are_followed_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "vars.sh").write_text("TP=4\n")
    (tmp_path / "in").mkdir()
    text = "source vars.sh\n. ./none.sh\nsource /etc/profile\nsource ../vars.sh\nsource $X/a.sh\nshow $TP"
    script = followed(text, tmp_path)
    assert [word.text for word in script.commands[-1].words] == ["show", "4"]
    assert [word.text for word in script.missing] == ["./none.sh", "/etc/profile", "../vars.sh", "${X}/a.sh"]
    assert words("show $TP", tmp_path / "in", TP="8") == ["8"]


NESTED = {
    "exported": ("export TP=4; PP=2; CP=1 bash inner.sh", "show $TP ${PP:-7} $CP", ["4", "7", "1"]),
    "arguments": ('A=(--x 1 --y "2 3"); bash ./inner.sh "${A[@]}" "$@"', 'shift 2; show "$@"', ["--y", "2 3", "a b"]),
    "its own shell": ("TP=4; bash inner.sh; show $TP", "TP=8; exit 0", ["4"]),
    "everything": ("set -a; TP=4; sh inner.sh", "show $TP", ["4"]),
    "written": ("export TP=4; cat > new.sh <<EOF\nshow $TP \\$1\nEOF\nbash new.sh --x", "", ["4", "--x"]),
    "of another": ("bash inner.sh 3", "f() { show $1; }\nexec bash $(dirname $0)/last.sh $(( $1 * 2 ))", ["6"]),
}


@pytest.mark.parametrize("name", NESTED)
def test_scripts_that_a_script_starts_see_what_bash_gives_them(name: str, tmp_path: Path) -> None:
    """bash is the oracle, as above."""
    text, inner, expected = NESTED[name]
    show = 'show() { printf "%s\\n" "$#" "$@" > "$SHOWN"; }\n'
    for folder, before in ((tmp_path / "read", ""), (tmp_path / "run", show)):
        folder.mkdir()
        (folder / "inner.sh").write_text(before + inner)
        (folder / "last.sh").write_text(before + "show $1")
        (folder / "run.sh").write_text(before + text)
    environment = os.environ | {
        "SHOWN": str(tmp_path / "shown"),
        "BASH_FUNC_show%%": '() { printf "%s\\n" "$#" "$@" > "$SHOWN"; }',
    }
    subprocess.run(["bash", "run.sh", "a b"], check=True, env=environment, cwd=tmp_path / "run")
    assert (tmp_path / "shown").read_text().split("\n")[1:-1] == expected
    assert words(text, tmp_path / "read", "a b") == expected


def test_a_launcher_in_front_of_a_script_is_that_of_its_command_lines(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("torchrun train.py --x")
    script = followed("srun -N 4 --gpus-per-node=8 bash inner.sh\nbash gone.sh", tmp_path)
    assert [" ".join(word.text for word in one.words) for one in script.commands] == [
        "srun -N 4 --gpus-per-node=8 torchrun train.py --x",
        "bash gone.sh",
    ]
    assert [(word.text, word.line) for word in script.started] == [("inner.sh", 1)]


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command on the path, and those that bash has, would leave a mark."""
    mark, path = tmp_path / "mark", tmp_path / "path"
    path.mkdir()
    for name in ("nproc", "touch", "torchrun", "python", "rm", "curl", "cat", "date"):
        (path / name).write_text(f"#!/bin/sh\necho run > {mark}\n")
        (path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(path))
    hostile = f"A=$(touch {mark}); B=`touch {mark}`; eval 'touch {mark}'; bash -c 'touch {mark}'; cat <(touch {mark}) > {mark}\n"
    followed(hostile + "trap 'touch {mark}' EXIT\nexec 3> {mark}\nrm -rf /\nshow $A", tmp_path)
    assert not mark.exists()


HOSTILE = {
    "while": "while true; do A=x$A; done; show a",
    "recursion": "f() { f; }; f",
    "sources itself": "source run.sh",
    "starts itself": "bash run.sh; ./run.sh",
    "writes itself": "cat > a.sh <<EOF\nbash a.sh\nEOF\nbash a.sh",
    "eval of itself": 'A=\'eval "$A"\'; eval "$A"',
    "power": "show $((9 ** 9 ** 9 ** 9))",
    "doubling": "A=xxxxxxxxxxxxxxxx; " + "A=$A$A$A$A; " * 30 + "show a",
    "deep": "show " + "$((" * 300 + "1" + "))" * 300,
    "nested": "if [ a = a ]; then " * 200 + "show a; " + "fi; " * 200,
    "division": "show $((1 / 0)) $((1 % 0))",
    "brackets": "${" * 500,
    "marks": "show \ue0000\ue001 \ue003",
    "no end": "show 'a",
    "heredoc": "cat <<EOF\n$(x",
    "counting": "for ((i=0; i<1000; i++)); do for ((j=0; j<1000; j++)); do A=$i; done; done; show a",
    "backwards": "for ((i=0; i>=0; i++)); do A=$i; done; show a",
    "array of itself": 'A=(x x); for ((i=0; i<900; i++)); do A+=("${A[@]}"); done; show a',
    "numbers": "show $(seq 1 999999999) $(seq 1 0 5) $(seq a b) $(expr 1 / 0)",
    "form": 'printf -v A "%s%d%99999999x" 1 2; printf -v B "%s" $(seq 1 1000); show $A',
    "ssh": 'A="ssh x --y"; for i in 1 2 3; do A="ssh x \'$A\'"; done; eval "$A"',
    "here-documents": "for ((i=0; i<900; i++)); do cat > f$i <<EOF\n$i\nEOF\ndone; show a",
    "index": "A=(1); show ${A[99999999999999999999]} ${A[-1]} ${A[x]}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scripts_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MOST_STEPS", shell.MOST_STEPS // 10)
    try:
        followed(HOSTILE[name], tmp_path)
    except DataError as error:
        assert "run.sh" in str(error)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="abA1 $(){}[]\"'`;|&<>=-+*/#\\\n\t", max_size=200))
def test_any_text_is_followed_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        followed(text, tmp_path_factory.mktemp("any"))
    except DataError as error:
        assert "run.sh" in str(error)


@pytest.mark.parametrize(
    ("text", "n"), [("a:0,1@b:2", 3), ("a:0", 1), ("a", 0), ("a@b:0,2", 0), ("a:0,1@b", 0), ("", 0)]
)
def test_included_gpus_are_counted_where_every_host_says_which(text: str, n: int) -> None:
    assert included_gpus(text) == n
