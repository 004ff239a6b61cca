"""Text of files reaches the terminal without its control characters."""

import ast
import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import prism_jax
import prism_jax.shell
from prism_jax.core.errors import (
    FIRST,
    MOST_LINE,
    ConfigError,
    DataError,
    Mark,
    Mistake,
    PrismError,
    SpecError,
    printable,
    printable_lines,
    shortened,
)
from prism_jax.horizon.reliability_file import load_reliability
from prism_jax.queue.trace_file import read_queue_trace
from prism_jax.shell.app import main
from prism_jax.slowdowns.slowdowns_file import read_slowdowns
from prism_jax.validation.job_table import read_job_table, read_memory_runs
from tests.prism_jax.shell.calls import Said, said
from tests.prism_jax.validation.test_validate_steps import ROW
from tests.support.job_texts import JOB

EVIL = "\x1b]0;own\x07\x1b[31mred\rback\x9b2J\nforged: line\u2028forged: too\u202egnitirw\u200b\x7f"
QUOTED = json.dumps(EVIL)  # as YAML and TOML write it too
SHORT = "a\x1b[31m\u202e\nforged: name"
PLAN = "plan: {tp: 2, pp: 2, dp: 2, micro_batch: 1, global_batch: 8, seq_len: 2048}\n"
MODEL, CLUSTER = "model: {preset: llama-3-8b}\n", "cluster: {preset: dgx-h100}\n"
FITS = {name: ROW[name] for name in ROW if name not in ("step_time_s", "step_time_sd_s")} | {"fits": "true"}


def _table(*rows: dict[str, str]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


FILES = {
    "name.yaml": f"name: {QUOTED}\n" + MODEL + CLUSTER + PLAN,
    "all.yaml": f"name: {QUOTED}\nmodel: {{preset: llama-3-8b, name: {QUOTED}}}\n"
    f"cluster: {{preset: dgx-h100, name: {QUOTED}}}\n" + PLAN,
    "model.yaml": f"model: {{preset: llama-3-8b, name: {QUOTED}, source: {QUOTED}}}\n" + CLUSTER + PLAN,
    "cluster.yaml": MODEL + f"cluster: {{preset: dgx-h100, name: {QUOTED}, device: {{name: {QUOTED}}}}}\n" + PLAN,
    "tier.yaml": MODEL + f"cluster: {{preset: dgx-h100, tiers: {{{QUOTED}: {{latency: 1 us}}}}}}\n" + PLAN,
    "variability.yaml": MODEL + CLUSTER + PLAN + f"variability: {{preset: h100-default, name: {QUOTED}}}\n",
    "key.yaml": f"{QUOTED}: 1\n" + MODEL + CLUSTER + PLAN,
    "nested.yaml": MODEL + CLUSTER + PLAN.replace("tp: 2", f"{QUOTED}: 2"),
    "preset.yaml": f"model: {QUOTED}\ncluster: {QUOTED}\nplan: {{schedule: {QUOTED}}}\n",
    "twice.yaml": f"{QUOTED}: 1\n{QUOTED}: 2\n",
    "unit.yaml": MODEL + CLUSTER.replace("}", f", tiers: {{infiniband: {{bandwidth: {QUOTED}}}}}}}") + PLAN,
    "hf.yaml": f"model: {{hf_config: {QUOTED}}}\n" + CLUSTER + PLAN,
    "key.toml": json.dumps(EVIL.replace("\x7f", "")) + " = 1\nmodel = 1\n",
    "space.yaml": f"{QUOTED}: [1]\ntp: [{QUOTED}]\n",
    "job.yaml": MODEL + CLUSTER + PLAN,
    "steps.csv": _table(ROW | dict.fromkeys(("row", "source", "notes"), EVIL) | {"model.name": EVIL}),
    "steps_header.csv": _table({EVIL: "1"} | ROW),
    "steps_number.csv": _table(ROW | {"row": EVIL, "plan.tp": EVIL, "cluster": EVIL}),
    "known.csv": _table(ROW | {"row": SHORT, "source": SHORT}, ROW | {"row": EVIL, "source": EVIL}),
    "memory.csv": _table(FITS | dict.fromkeys(("row", "source", "model.name"), EVIL)),
    "memory_number.csv": _table(FITS | {"plan.tp": EVIL, "fits": EVIL}),
    "jobs.csv": _table({"job": EVIL, "measured_step_time_s": "1", "id": EVIL}),
    "jobs_set.csv": _table({"job": "job.yaml", "measured_step_time_s": "1", "id": EVIL, "set": f"'{EVIL}=1'"}),
    "slow.csv": _table({"gpu": EVIL, "slowdown": "1"}),
    "slow_header.csv": _table({EVIL: "0", "slowdown": "1"}),
    "ops.csv": _table({"step": "0", EVIL: EVIL}),
    "meta.yaml": f"{QUOTED}: 1\nname: {QUOTED}\n",
    SHORT.replace("/", "") + ".yaml": "model: 1\n",
    "cause.yaml": f"name: {QUOTED}\nsource: {QUOTED}\nhazards: [{{cause: {QUOTED}, per_gpu_h: 1e-5, repair: 2 h}}]\n",
    "field.yaml": f"hazards: [{{cause: x, {QUOTED}: 1}}]\n",
    "repair.yaml": f"hazards: [{{cause: x, per_gpu_h: 1e-5, repair: {QUOTED}}}]\n",
    "failures.csv": _table({"cluster": EVIL, "gpus": "1000", "nodes": "125", "hours": EVIL, "count": "3"}),
    "kind.csv": _table({"cluster": EVIL, "gpus": "1000", "hours": "100", "count": "3", "kind": EVIL}),
    "repairs.csv": _table({"system": EVIL, "node": EVIL, "start": EVIL, "end": "2024-01-02 10:00Z"}),
    "revocation.csv": _table(
        {"zone": EVIL, "gpu": EVIL, "kind": EVIL, "trace": EVIL, "start_s": "0", "duration_s": "9"}
    ),
    "prices.csv": _table({"cloud": EVIL, "instance": EVIL, "gpu": EVIL, "gpus": "8", "usd_h": "3", "zone": EVIL}),
    "money.csv": _table({"cloud": EVIL, "gpu": "A100", "gpus": "8", "usd_h": EVIL}),
    "rented.json": '{"steps_done": 1, ' + f"{QUOTED}: 1}}",
    "queue.csv": _table({"submit_s": "0", "gpus": EVIL, "duration_s": "9", "vc": EVIL}),
    "groups.csv": _table(*({"submit_s": f"{n}", "gpus": "1", "duration_s": "9", "vc": EVIL} for n in range(9))),
    "log.csv": _table({"step": EVIL, "step_time_s": "0.4"}),
    "log_header.csv": _table({"step": "1", EVIL: "0.4"}),
}
FEW = ("--samples", "64")
CALLS: dict[str, list[str]] = {
    **{f"check {name}": ["check", name] for name in FILES if name.endswith((".yaml", ".toml"))},
    **{f"json {name}": ["check", name, "--json"] for name in ("name.yaml", "model.yaml")},
    "predict": ["predict", "all.yaml", *FEW],
    "set": ["check", "job.yaml", "--set", f"plan.{EVIL}={EVIL}", "--set", EVIL],
    "space": ["search", "job.yaml", "--space", "space.yaml"],
    "debug": ["check", "key.yaml", "--debug"],
    **{
        f"steps {n}": ["validate", "steps", n, "--deterministic"]
        for n in FILES
        if n.startswith(("steps", "jobs", "known"))
    },
    **{f"memory {n}": ["validate", "memory", n] for n in ("memory.csv", "memory_number.csv")},
    **{f"slow {n}": ["predict", "job.yaml", "--slowdowns", n] for n in ("slow.csv", "slow_header.csv", EVIL)},
    "trace": ["trace", "info", "ops.csv"],
    "meta": ["trace", "info", "ops.csv", "--meta", "meta.yaml"],
    "fleet": ["fit", "fleet", "ops.csv"],
    "calibrate": ["calibrate", "jobs.csv", "-o", "x.nc"],
    "fit": ["predict", "job.yaml", "--fit", EVIL],
    "show": ["show", EVIL],
    "show entry": ["show", "models", EVIL],
    "command": [EVIL],
    "option": ["check", f"--{EVIL}"],
    "more": ["check", "job.yaml", EVIL],
    "value": ["predict", "job.yaml", "--seed", EVIL],
    "no file": ["check", EVIL],
    "output": ["predict", "job.yaml", "--plot", EVIL],
    **{
        f"run {n}": ["run", "job.yaml", "--steps", "9", "--reliability", f"{n}.yaml"]
        for n in ("cause", "field", "repair")
    },
    "run by name": ["run", "job.yaml", "--steps", "9", "--reliability", EVIL],
    **{
        f"run {n}": ["run", "job.yaml", "--steps", "9", n, EVIL]
        for n in ("--mtbf", "--checkpoint", "--spares", "--policy")
    },
    "named job": ["run", "name.yaml", "--steps", "9", "--worlds", "100", "--mtbf", "3h"],
    **{f"fit {n}": ["fit", n, f"{n}.csv", "--method", "map"] for n in ("failures", "repairs", "revocation")},
    "fit kinds": ["fit", "failures", "kind.csv", "--method", "map"],
    "cloud": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv"],
    "cloud money": ["cloud", "job.yaml", "--steps", "9", "--catalog", "money.csv"],
    "cloud region": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--regions", EVIL],
    "cloud policy": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--policy", EVIL],
    "cloud law": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--availability", EVIL],
    "cloud state": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--resume", "rented.json"],
    "queue": ["queue", "queue.csv"],
    "queue group": ["queue", "groups.csv", "--group", EVIL, "--seeds", "2"],
    "queue no group": ["queue", "groups.csv", "--group", "x" + EVIL],
    "watch": ["watch", "log.csv"],
    "watch header": ["watch", "log_header.csv"],
    "sweep field": ["sweep", "job.yaml", "--set", f"{EVIL}=1,2", *FEW],
    "sweep value": ["sweep", "job.yaml", "--set", f"plan.tp={EVIL},2", *FEW],
    "sweep names": ["sweep", "job.yaml", "--set", f"name=a,{EVIL.replace(',', '')}", *FEW],
    "scale": ["scale", "name.yaml", "--gpus", "8", *FEW],
    "scale target": ["scale", "job.yaml", "--gpus", "8", "--target", EVIL, *FEW],
    "compare": ["compare", "name.yaml", "job.yaml", *FEW],
    "compare price": ["compare", "job.yaml", "name.yaml", "--price", f"{EVIL}=2", *FEW],
    "capacity": ["capacity", "name.yaml", "--fleet", f"8x{EVIL}", *FEW],
    "host": ["trace", "host", EVIL],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    folder = tmp_path_factory.mktemp("printed")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return said(CALLS, folder, timeout_s=600.0)


@pytest.mark.parametrize("name", CALLS, ids=printable)
def test_nothing_from_outside_steers_the_terminal(answers: dict[str, Said], name: str) -> None:
    answer = answers[name]
    assert answer.code in (0, 1, 2)
    assert "bug" not in answer.err
    for text in (answer.out, answer.err):
        assert all(letter.isprintable() or letter == "\n" for letter in text), ascii(text)
        assert not any(line.lstrip(" │").startswith("forged") for line in text.split("\n")), text


def test_most_places_show_the_text_spelt_out(answers: dict[str, Said]) -> None:
    """Otherwise the test above would pass because nothing is shown at all."""
    shown = [name for name, answer in answers.items() if "\\x1b" in answer.out + answer.err or "\\u001b" in answer.out]
    assert len(shown) >= 0.57 * len(CALLS), sorted(set(CALLS) - set(shown))


def test_json_says_the_same_with_escapes(answers: dict[str, Said]) -> None:
    assert json.loads(answers["json name.yaml"].out)["name"] == EVIL


def test_what_is_spelt_out_stays_as_it_is_and_letters_stay() -> None:
    assert printable(printable(EVIL)) == printable(EVIL)
    assert printable("Lama — ± 日本 🦙 │ a b") == "Lama — ± 日本 🦙 │ a b"
    assert printable("\x1b\n\u202e") == "\\x1b\\n\\u202e"
    assert printable_lines("a\x1b\nb") == "a\\x1b\nb"


def test_a_mistake_is_one_line() -> None:
    assert "\n" not in str(ConfigError.in_file(EVIL, f"no {EVIL}"))


def test_debug_shows_the_traceback_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "no\x1bfile", "--debug"]) == 2
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "\x1b" not in text


def test_only_the_writers_print() -> None:
    """A new command prints through `output` and `say`, which spell out; these files alone write to a stream."""
    allowed = {"output.py": ("print", "Console"), "streams.py": ("print",)}
    folder = Path(prism_jax.shell.__file__).parent
    for file in folder.rglob("*.py"):
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        writers = called & {"print", "Console", "echo"}
        assert writers <= set(allowed.get(file.name, ())), f"{file.name}: use output.print_lines or say"


# --- Messages stay readable whatever they quote ----------------------------------------------------------------------


LONG = "x" * 100_000
PRINTABLE_FILES = {
    "reliability.yaml": (f"hazards: [{{cause: x, per_job_h: {LONG}, {LONG}: 1}}]", load_reliability),
    "job.yaml": (f"{JOB}{LONG}: 1\n", prism_jax.check_job),
    "model.yaml": (f"model: {LONG}\ncluster: {LONG}\n", prism_jax.check_job),
    "queue.csv": (f"submit_s,gpus,{LONG}\n0,1,2\n", read_queue_trace),
    "slow.csv": (f"gpu,slowdown\n0,{LONG}\n", lambda file: read_slowdowns(file, 8, 8)),
    "steps.csv": (f"{LONG},y\n1,2\n", read_job_table),
    "memory.csv": (f"{LONG},y\n1,2\n", read_memory_runs),
    "trace.csv": (f"step,dp,pp,op_type,start_s,duration_s,{LONG}\n0,0,0,{LONG},0,1,2\n", prism_jax.open_trace),
}


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.text(st.sampled_from("ab\n\x1b"), max_size=5000))
def test_lines_are_bounded_and_short_ones_stay(text: str) -> None:
    found = shortened(text).split("\n")
    for line, kept in zip(text.split("\n"), found, strict=True):
        assert len(kept) <= MOST_LINE
        assert kept == line or (len(line) > MOST_LINE and kept.startswith(line[:FIRST]))


def test_the_place_and_the_remedy_of_a_long_message_stay() -> None:
    whole = f"job.yaml:3:1 plan.tp: {LONG} is no number. Give one."
    found = shortened(whole)
    assert found.startswith("job.yaml:3:1 plan.tp: xxx")
    assert found.endswith("xxx is no number. Give one.")
    assert f"... ({len(whole) - 950:,} characters) ..." in found


@pytest.mark.parametrize("kind", [PrismError, SpecError, DataError])
def test_errors_are_bounded_and_keep_what_others_are_made_of(kind: type[PrismError]) -> None:
    error = kind(LONG)
    assert len(str(error)) <= MOST_LINE
    assert error.text == LONG


def test_every_mistake_has_its_own_bound() -> None:
    error = ConfigError([Mistake("\x00" * 5000, Mark("a.yaml", 1, 1)), Mistake("short")])
    first, second = str(error).split("\n")
    assert (len(first) <= MOST_LINE, first.isprintable(), second) == (True, True, "short")


@pytest.mark.parametrize("name", PRINTABLE_FILES)
def test_long_texts_of_files_are_not_printed_whole(name: str, tmp_path: Path) -> None:
    text, read = PRINTABLE_FILES[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(PrismError) as error:
        read(tmp_path / name)
    assert all(len(line) <= MOST_LINE for line in str(error.value).split("\n"))
    assert name in str(error.value)


def test_long_options_are_not_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["predict", "llama2_7b_fsdp_64", "--set", f"plan.tp={LONG}"], ["predict", LONG], ["show", LONG]):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert said
        assert len(said) < 3 * MOST_LINE


def test_what_is_short_and_plain_is_printed_as_it_is() -> None:
    assert shortened(printable("plain text, 5% of it")) == "plain text, 5% of it"
