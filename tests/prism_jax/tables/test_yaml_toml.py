"""YAML and TOML: safe, strict, and every refusal says where and what to do."""

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import ConfigError, Mark
from prism_jax.tables.yaml_toml import read_toml, read_value, read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: the file is empty"),
        ("# only a comment\n", "f.yaml: the file is empty"),
        ("---\n...\n", "f.yaml: the file is empty. Start from a file under examples/."),
        ("- 1\n", "f.yaml:1:1: a job is a mapping of sections (model, cluster, plan), not a list"),
        ("hello", "not the text 'hello'"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "f.yaml:4:3 c: written twice, first at f.yaml:3:3. Keep one."),
        ("a:\n\tb: 1\n", "f.yaml:2:1: not valid YAML: a tab. Indent with spaces."),
        ("a: b: c\n", "a second `:` in one value"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: 'x\n", "a quote or bracket that is never closed"),
        ("a: @x\n", "Put the text in quotes"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("a: \x00\n", "a character that text does not contain"),
        ("a: *x\n", "undefined alias"),
        ("a: &x [*x]\n", "an alias that contains itself"),
        (BOMB, "after expanding aliases"),
        ("[" * 100_000, "nested more than 50 levels deep"),
        ("- " * 5_000, "nested more than 50 levels deep"),
        (
            "a: !!python/object/apply:os.system [x]\n",
            "f.yaml:1:4: not valid YAML: the tag tag:yaml.org,2002:python/object/apply",
        ),
        (
            "a: !!python/name:os.system x\n",
            "f.yaml:1:4: not valid YAML: the tag tag:yaml.org,2002:python/name:os.system is not",
        ),
        ("a: !!set {b}\n", "the tag tag:yaml.org,2002:set is not supported"),
        ("a: !mine x\n", "the tag !mine is not supported. Remove it."),
        ("a: 2024-13-45\n", "month must be in 1..12"),
        ("a: 010\n", "010 is not a decimal number in YAML"),
        ("a: 1:30\n", "1:30 is not a decimal number in YAML"),
        ("<<: {a: 1}\n", "merge keys are not supported"),
        ("? [1]\n: 2\n", "a field name must be a word, not a list"),
        ("a: " + "9" * 5000 + "\n", "cannot be read"),
    ],
)
def test_bad_yaml_is_refused_with_place_and_remedy(text, message):
    with pytest.raises(ConfigError) as error:
        read_yaml(text, "f.yaml")
    assert message in str(error.value)
    assert len(str(error.value)) < 400


def test_an_empty_file_of_another_kind_names_its_own_form():
    with pytest.raises(ConfigError, match=r"f.yaml: the file is empty, but a space is a mapping"):
        read_yaml("", "f.yaml", "a space is a mapping")


def test_scalars_mean_what_people_mean():
    text = "a: 1e9\nb: 1.5e-3\nc: '1e9'\nd: 1_000\ne: true\nf: none\ng: 400 Gbit/s\nh: ~\ni: 0\nj: -3.5\n1: x\n"
    assert read_yaml(text, "f.yaml").data == {
        "a": 1e9,
        "b": 1.5e-3,
        "c": "1e9",
        "d": 1000,
        "e": True,
        "f": "none",
        "g": "400 Gbit/s",
        "h": None,
        "i": 0,
        "j": -3.5,
        "1": "x",
    }


def test_every_field_has_its_line_and_column():
    document = read_yaml("a: 1\nb:\n  c: [x, y]\n", "f.yaml")
    assert str(document.mark(("a",))) == "f.yaml:1:1"
    assert str(document.mark(("b", "c"))) == "f.yaml:3:3"
    assert str(document.mark(("b", "c", 1))) == "f.yaml:3:10"
    assert str(document.mark(("b", "absent"))) == "f.yaml:2:1"
    assert str(document.mark(())) == "f.yaml"


def test_aliases_within_reason_are_expanded():
    assert read_yaml("a: &x {b: 1}\nc: *x\n", "f.yaml").data == {"a": {"b": 1}, "c": {"b": 1}}


def test_several_duplicates_are_all_listed():
    with pytest.raises(ConfigError) as error:
        read_yaml("a: 1\na: 2\nb: 1\nb: 2\n", "f.yaml")
    assert len(error.value.mistakes) == 2


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("[tp, dp]", ["tp", "dp"]), ("", None), ("true", True), ("1e3", 1e3)]
)
def test_option_values_are_yaml(text, value):
    assert read_value(text, Mark("--set x", option=())) == value


@given(st.text(alphabet=":-[]{}&*!|>'\"%@`#,? \n\tab01.~<", max_size=40))
def test_any_text_is_read_or_refused_by_a_config_error(text):
    try:
        assert isinstance(read_yaml(text, "f.yaml").data, dict)
    except ConfigError as error:
        assert error.mistakes


# --- TOML reading: values by the parser of the standard library, lines found again -----------------------------------


TEXT = """# a job
name = "x"

[plan]
tp = 8
overlap.dp = true

[[cluster.tiers]]
name = "nvlink"

[[cluster.tiers]]
  name = "spine"
"""


def test_fields_have_their_lines():
    document = read_toml(TEXT, "f.toml")
    assert document.data["plan"] == {"tp": 8, "overlap": {"dp": True}}
    assert str(document.mark(("name",))) == "f.toml:2:1"
    assert str(document.mark(("plan",))) == "f.toml:4:1"
    assert str(document.mark(("plan", "tp"))) == "f.toml:5:1"
    assert str(document.mark(("plan", "overlap", "dp"))) == "f.toml:6:1"
    assert str(document.mark(("cluster", "tiers", 0, "name"))) == "f.toml:9:1"
    assert str(document.mark(("cluster", "tiers", 1, "name"))) == "f.toml:12:3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.toml: the file is empty"),
        ("a = \n", "f.toml:1:5: not valid TOML"),
        ("a = 1\na = 2\n", "f.toml:2:6: not valid TOML: Cannot overwrite a value"),
        ("a: 1\n", "f.toml:1:2: not valid TOML"),
        ("a = " + "[" * 50_000, "nested too deeply"),
    ],
)
def test_bad_toml_is_refused_with_its_place(text, message):
    with pytest.raises(ConfigError) as error:
        read_toml(text, "f.toml")
    assert message in str(error.value)
