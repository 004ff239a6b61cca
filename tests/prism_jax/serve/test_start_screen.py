"""The form of a command: every option is on it, its words parse to what was filled in, and refusals keep the form."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args, get_origin

import pytest

from prism_jax.core.errors import DataError, PrismError
from prism_jax.core.use_case import case_of, command_line_type
from prism_jax.serve.command_fields import (
    ELSEWHERE,
    NOT_STARTED,
    SUBJECT,
    CommandField,
    check_values,
    fields_of,
    filled_with,
    is_written,
    product_of,
    startable,
    words_of,
)
from prism_jax.shell.app import command_line
from prism_jax.shell.catalogue import COMMANDS, Command
from prism_jax.shell.command import parts_of_command

from .client import Client

ALL = [command for own in startable().values() for command in own]


def by_name(command: Command) -> Any:
    return command.name


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder = tmp_path_factory.mktemp("served")
    for name in ("j.yaml", "a.yaml"):
        (folder / name).write_text("plan: {}\n")
    return Client(folder)


def texts(one: CommandField) -> list[str]:
    """Values that a field takes: one, or two where it is repeated."""
    option, kind = one.part.option, command_line_type(one.part.hint, one.part.option)
    if one.kind == "flag":
        return ["on"]
    if one.kind == "choice":
        return [one.choices[1]]
    inner = get_args(kind)[0] if get_origin(kind) is list else kind
    if inner in (int, float):
        first = max(option.least if option.least is not None else 1.0, 1.0)
        first = first if option.most is None else min(first, option.most)
        found = [f"{first:g}", f"{first:g}"]
    else:
        found = ["--odd=name, with a blank", "plan.tp=2"] if one.word else ["a file.yaml", "b.yaml"]
    return found if one.kind == "lines" else found[:1]


def expected(one: CommandField) -> Any:
    kind = command_line_type(one.part.hint, one.part.option)
    if one.kind == "flag":
        return True
    if one.kind == "choice":
        return one.choices[1] == one.part.option.names.partition("/")[0]
    inner = get_args(kind)[0] if get_origin(kind) is list else kind
    values = [inner(text) if inner is not int else int(float(text)) for text in texts(one)]
    return values if one.kind == "lines" else values[0]


@pytest.mark.parametrize("command", ALL, ids=by_name)
def test_the_words_of_a_filled_form_parse_to_what_was_filled_in(command: Command) -> None:
    filled = {one.name: ["\n".join(texts(one))] for one in fields_of(command)}
    words = words_of(command, filled)
    _, found, _ = command_line(words).parse_args(words, exit_on_error=False, print_error=False)
    names = list(found.signature.parameters)
    for one in fields_of(command):
        assert one.part.name in names
        value = found.arguments[one.part.name]
        assert (list(value) if isinstance(value, tuple) else value) == expected(one), one.label


@pytest.mark.parametrize("command", ALL, ids=by_name)
def test_the_words_of_a_run_fill_the_form_as_it_was(command: Command) -> None:
    filled = {one.name: texts(one) for one in fields_of(command)}
    assert filled_with(command, words_of(command, filled)) == filled


@pytest.mark.parametrize("command", ALL, ids=by_name)
def test_every_option_is_on_the_form_or_belongs_to_the_run(command: Command, client: Client) -> None:
    parts = {part.name for part in parts_of_command(command.load(), command.fixed)}
    known = {one.part.name for one in fields_of(command)}
    written = {
        part.name
        for part in parts_of_command(command.load(), command.fixed)
        if part.option.check is not None or "--output" in part.option.names
    }
    assert parts - known <= ELSEWHERE | written
    page = client.get("/start", command=command.name)
    assert page.status == 200
    for one in fields_of(command):
        assert f'name="{one.name}"' in page.text
        assert f'aria-describedby="about-{one.name}"' in page.text
        assert f'for="field-{one.name}"' in page.text
    assert bool(product_of(command)) == any(map(is_written, fields_of(command)))


@pytest.mark.parametrize("command", ALL, ids=by_name)
def test_fields_have_names_of_their_own(command: Command) -> None:
    names = [one.name for one in fields_of(command)]
    assert len(set(names)) == len(names)
    assert "command" not in names
    assert [one.name for one in fields_of(command) if not one.word][:1] in ([SUBJECT], [])


def test_what_answers_with_a_report_can_be_started_or_says_where_it_is() -> None:
    from prism_jax.core.report import Report

    def answers(command: Command) -> bool:
        hint = inspect.get_annotations(inspect.unwrap(case_of(command.load()).function), eval_str=True).get("return")
        return any(inspect.isclass(kind) and issubclass(kind, Report) for kind in get_args(hint) or (hint,))

    without = {command.name for command in COMMANDS if not answers(command)}
    assert without <= NOT_STARTED.keys()
    assert NOT_STARTED.keys() <= {command.name for command in COMMANDS}


def test_the_list_names_every_command_with_its_line(client: Client) -> None:
    page = client.get("/start").text
    for command in ALL:
        assert f">{command.name}</a>" in page
    assert "capture" not in page


def test_bounds_and_defaults_stand_with_their_fields(client: Client) -> None:
    page = client.get("/start", command="predict", job="llama2_7b_fsdp_64").text
    samples = re.search(r"<input[^>]*name=\"samples\"[^>]*>", page)
    assert samples is not None
    assert 'type="number"' in samples[0]
    assert 'min="1"' in samples[0]
    assert 'step="1"' in samples[0]
    job = re.search(r"<input[^>]*name=\"job\"[^>]*>", page)
    assert job is not None
    assert 'value="llama2_7b_fsdp_64"' in job[0]
    assert "required" in job[0]
    assert '<option value="llama2_7b_fsdp_64">' in page
    assert '<option value="h100-sxm">' in page


def test_a_form_becomes_a_run(client: Client) -> None:
    answer = client.post("/runs", {"command": "predict", "job": "j.yaml", "set": "plan.tp=2\nplan.pp=1", "seed": ""})
    assert answer.status == 303
    assert answer.headers["location"].startswith("/run?name=")
    assert client.runs.submitted[-1] == ("predict", "j.yaml", "--set", "plan.tp=2", "--set", "plan.pp=1")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": "predict"}, "JOB: is needed"),
        ({"command": "watch", "job": "a.csv", "restart-cost": "soon"}, "--restart-cost"),
        ({"command": "scale", "job": "a.yaml"}, "--gpus: is needed"),
        ({"command": "export", "job": "a.yaml", "to": "nothing"}, "nothing"),
        ({"command": "predict", "job": "--json"}, "begins with a dash"),
        ({"command": "predict", "job": "jj.yaml"}, "Did you mean j.yaml?"),
        ({"command": "compare", "job": "a.yaml\nllama2_7b_fsdp_46"}, "A shipped job is called llama2_7b_fsdp_64."),
        ({"command": "predict", "job": "../j.yaml"}, "not in the folder that is served"),
        ({"command": "predict", "job": "a.yaml", "workers": "9"}, "no option"),
        ({"command": "predict", "job": "a.yaml", "seed": ["1", "2"]}, "one value is taken"),
        ({"command": "predict", "job": "a.yaml", "level": "--plot=x.png"}, "--level"),
    ],
)
def test_what_is_refused_comes_back_in_the_form(client: Client, fields: dict[str, Any], said: str) -> None:
    n_before = len(client.runs.submitted)
    answer = client.post("/runs", fields)
    assert answer.status == 400
    assert said in answer.text
    assert 'id="options"' in answer.text
    assert len(client.runs.submitted) == n_before
    assert str(client.site.folder) not in answer.text
    if fields.get("job", "").endswith(".yaml"):
        assert f'value="{fields["job"]}"' in answer.text


def test_the_field_that_is_wrong_is_marked(client: Client) -> None:
    page = client.post("/runs", {"command": "watch", "job": "a.csv", "restart-cost": "soon"}).text
    field = re.search(r"<input[^>]*name=\"restart-cost\"[^>]*>", page)
    assert field is not None
    assert 'aria-invalid="true"' in field[0]
    assert 'value="soon"' in field[0]


def test_a_full_queue_is_told_in_its_own_words(tmp_path: Any) -> None:
    class Full:
        def runs(self) -> list[Any]:
            return []

        def submit(self, words: Any) -> Any:
            raise DataError("queue: 16 runs wait, which is the most that may")

    (tmp_path / "j.yaml").write_text("plan: {}\n")
    answer = Client(tmp_path, Full()).post("/runs", {"command": "predict", "job": "j.yaml"})
    assert answer.status == 400
    assert "16 runs wait" in answer.text
    assert 'value="j.yaml"' in answer.text


@pytest.mark.parametrize("name", ["", "nothing", "capture", "serve", "fit", "\x00"])
def test_other_commands_are_refused(client: Client, name: str) -> None:
    assert client.get("/start", command=name).status == 400
    assert client.post("/runs", {"command": name}).status == 400


def test_the_command_line_is_shown_as_it_would_be_typed(client: Client) -> None:
    page = client.post("/start/line", {"command": "predict", "job": "my job.yaml", "fast": "on"}).text
    assert "prism-jax predict &#39;my job.yaml&#39; --fast" in page
    assert "is needed" in client.post("/start/line", {"command": "predict"}).text


def test_a_product_has_a_free_name(tmp_path: Any) -> None:
    (tmp_path / "fleet.npz").write_bytes(b"")
    page = Client(tmp_path).get("/start", command="fit fleet").text
    assert 'value="fleet-2.npz"' in page


def test_values_are_read_before_anything_is_queued() -> None:
    command = COMMANDS.named("run")
    with pytest.raises(PrismError, match="--deadline"):
        check_values(command, {"job": ["a.yaml"], "deadline": ["tomorrow"]})
    check_values(command, {"job": ["a.yaml"], "deadline": ["12d"]})
