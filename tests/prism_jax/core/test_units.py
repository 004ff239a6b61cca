"""Units: bits and bytes, decimal and binary prefixes, refusals with a remedy, and the way back to text."""

import pytest
from hypothesis import given, strategies as st

from prism_jax.core import units
from prism_jax.core.errors import UnitError


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("400 Gbit/s", "bandwidth", 50e9),
        ("400 Gbps", "bandwidth", 50e9),
        ("400Gbit/s", "bandwidth", 50e9),
        ("1.5 GB/s", "bandwidth", 1.5e9),
        ("3.35 TB / s", "bandwidth", 3.35e12),
        ("80 GiB", "memory", 80 * 2**30),
        ("80 GB", "memory", 80e9),
        ("8 bit", "memory", 1.0),
        ("1_024 B", "memory", 1024.0),
        ("12 us", "time", 12e-6),
        ("12 µs", "time", 12e-6),
        ("0 s", "time", 0.0),
        ("1.5e3 ms", "time", 1.5),
        ("989 TFLOP/s", "compute rate", 989e12),
        ("1.98 PFLOPS", "compute rate", 1.98e15),
        ("700 W", "power", 700.0),
        ("1.2 kW", "power", 1200.0),
    ],
)
def test_quantity_is_read_in_si(text, kind, value):
    assert units.parse(text, kind) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (400, "bandwidth", '400 has no unit. Write bandwidth with its unit, for example "400 Gbit/s"'),
        ("400", "bandwidth", "has no unit"),
        ("400 Gb/s", "bandwidth", "may mean bits or bytes: write Gbit/s or GB/s"),
        ("80 Gb", "memory", "write Gbit or GB"),
        ("80 GB", "bandwidth", "is a unit of memory, not of bandwidth"),
        ("80 GB/s", "memory", "is a unit of bandwidth, not of memory"),
        ("989 tflop/s", "compute rate", "did you mean TFLOP/s?"),
        ("12 usec", "time", "did you mean us?"),
        ("fast", "time", "'fast' is not a quantity"),
        ("", "time", "is not a quantity"),
        (None, "time", "None is not a quantity"),
        (True, "time", "True is not a quantity"),
        (["1 s"], "time", "is not a quantity"),
        ("-3 s", "time", "must be finite and not negative"),
        ("1e999 s", "time", "must be finite and not negative"),
        ("nan s", "time", "is not a quantity"),
        ("5 parsec", "memory", "unknown unit 'parsec'"),
    ],
)
def test_wrong_quantity_is_refused_with_its_remedy(text, kind, message):
    with pytest.raises(UnitError) as error:
        units.parse(text, kind)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("formatter", "value", "text"),
    [
        (units.format_s, 10.3248, "10.32 s"),
        (units.format_s, 0.0125, "12.5 ms"),
        (units.format_s, 3e-6, "3 us"),
        (units.format_s, 0.0, "0 s"),
        (units.format_s, 3e-12, "0.003 ns"),
        (units.format_s, float("inf"), "inf s"),
        (units.format_bytes, 80 * 2**30, "80 GiB"),
        (units.format_bytes, 512, "512 B"),
        (units.format_bytes, -3 * 2**30, "-3 GiB"),
        (units.format_bytes_per_s, 50e9, "50 GB/s"),
        (units.format_flops_per_s, 989.4e12, "989.4 TFLOP/s"),
        (units.format_flops_per_s, 999.99e12, "1 PFLOP/s"),
        (units.format_watts, 700, "700 W"),
        (units.format_count, 405_853_388_800, "405.9 B"),
        (units.format_count, 16384, "16.38 K"),
    ],
)
def test_value_is_shown_in_the_unit_that_reads_best(formatter, value, text):
    assert formatter(value) == text


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_shown_time_reads_back_to_four_digits(seconds):
    assert units.parse(units.format_s(seconds), "time") == pytest.approx(seconds, rel=6e-4)


@given(st.floats(min_value=0, max_value=1e20), st.sampled_from(sorted(units.UNITS)))
def test_an_exact_text_reads_back_to_the_same_number(value, kind):
    assert units.parse(units.exact(value, kind), kind) == value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (450e9, "bandwidth", "450 GB/s"),
        (3.35e12, "bandwidth", "3350 GB/s"),
        (2e-6, "time", "2 us"),
        (81559 * 2.0**20, "memory", "81559 MiB"),
        (80 * 2.0**30, "memory", "80 GiB"),
        (989.4e12, "compute rate", "989.4 TFLOP/s"),
        (700.0, "power", "700 W"),
        (0.0, "time", "0 s"),
    ],
)
def test_an_exact_text_is_short(value, kind, text):
    assert units.exact(value, kind) == text
