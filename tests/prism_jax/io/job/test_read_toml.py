"""TOML reading: values by the parser of the standard library, lines found again."""

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.tables.yaml_toml import read_toml

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
