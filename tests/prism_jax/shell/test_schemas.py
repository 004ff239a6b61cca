"""Published schemas are what the types say, and dataclasses survive the way to JSON and back."""

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pytest

from prism_jax.core.errors import DataError, SpecError
from prism_jax.core.report import INLINE, WHERE_KNOWN, Key, Report, from_plain, json_schema, to_plain
from prism_jax.show.reports import FOLDER, REPORTS, publish, published_schema, schema_file, schema_text


@dataclass(frozen=True)
class Inner:
    """A part."""

    low: float
    high: float | None


@dataclass(frozen=True)
class Sample(Report):
    """A report with one field of every kind."""

    kind: ClassVar[str] = "sample"

    total: Annotated[float, Key("T")]
    inner: Annotated[Inner, INLINE]
    pair: tuple[int, str]
    several: tuple[Inner, ...]
    by_name: dict[str, Inner]
    either: bool | float
    rest: Annotated[Inner | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        return [f"{self.total:g} <b>"]


SAMPLE = Sample(1.5, Inner(0.0, None), (3, "x"), (Inner(1.0, 2.0),), {"a": Inner(1.0, 2.0)}, True)


@pytest.mark.parametrize("kind", list(REPORTS), ids=lambda kind: kind.kind)
def test_published_schemas_are_what_the_types_say(kind: type[Report]):
    assert schema_file(kind).read_text(encoding="utf-8") == schema_text(kind), "run python -m prism_jax.show.reports"


def test_no_other_schemas_are_published(tmp_path):
    assert sorted(file.name for file in FOLDER.iterdir()) == sorted(file.name for file in publish(tmp_path))


@pytest.mark.parametrize("name", REPORTS.names)
def test_schemas_say_what_every_report_is(name: str):
    schema = published_schema(name)
    assert schema["title"] == REPORTS.named(name).schema()
    assert schema["description"]


def test_unknown_reports_get_a_hint():
    with pytest.raises(SpecError, match="did you mean prediction"):
        published_schema("predicton")


def test_fields_stand_in_json_as_they_are_marked():
    plain = SAMPLE.to_dict()
    assert list(plain) == ["schema", "T", "low", "high", "pair", "several", "by_name", "either"]
    assert plain["pair"] == [3, "x"]
    assert Sample.from_dict(json.loads(SAMPLE.to_json())) == SAMPLE


def test_numbers_that_json_lacks_are_null():
    assert to_plain({"x": np.float64("nan"), "y": [np.inf], "z": np.arange(2)}) == {"x": None, "y": [None], "z": [0, 1]}
    assert np.isnan(from_plain(Inner, {"low": None, "high": None}).low)


def test_another_report_or_a_damaged_one_is_refused():
    with pytest.raises(DataError, match="it must be 'prism-jax/sample/1'"):
        Sample.from_dict({**SAMPLE.to_dict(), "schema": "prism-jax/sample/2"})
    with pytest.raises(DataError, match="damaged report of schema .*: the key .low. is missing"):
        Sample.from_dict({"schema": Sample.schema(), "T": 1.0})


def test_schema_describes_every_kind_of_field():
    schema = json_schema(Sample)
    assert schema["required"] == ["schema", "T", "low", "high", "pair", "several", "by_name", "either"]
    assert schema["properties"]["either"] == {"anyOf": [{"type": "boolean"}, {"type": "number"}]}
    assert schema["properties"]["rest"] == {"$ref": "#/$defs/Inner"}
    assert schema["properties"]["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema)
    validator.validate(SAMPLE.to_dict())
    assert list(validator.iter_errors({**SAMPLE.to_dict(), "T": "text"}))


def test_a_report_of_a_caller_is_known_like_the_others():
    with REPORTS.with_item(Sample):
        assert published_schema("sample") == json_schema(Sample)


def test_html_escapes_text():
    html = Inline("<script>").to_html()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


@dataclass(frozen=True)
class Inline(Report):
    """A report with a text."""

    kind: ClassVar[str] = "inline"

    text: str

    def to_html(self) -> str:
        return self._repr_html_()
