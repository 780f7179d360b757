"""Are quantities read exactly, refused clearly, and written so that they read back the same?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.base import units
from gpusim.base.errors import UnitError
from gpusim.base.units import BYTES, FLOPS, FRACTION, FREQUENCY, KINDS, POWER, RATE, TIME, parse, show, write


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("32 GiB", BYTES, 32 * 2**30),
        ("32GiB", BYTES, 32 * 2**30),
        (" 512 kB ", BYTES, 512_000),
        (".5 GiB", BYTES, 2**29),
        ("1.5e3 B", BYTES, 1500),
        ("0 B", BYTES, 0),
        ("0.3 GiB", BYTES, 322_122_547),  # to the nearest byte
        ("450 GB/s", RATE, 450e9),
        ("1 GiB/s", RATE, 2.0**30),
        ("1.5 us", TIME, 1500.0),
        ("1.5 µs", TIME, 1500.0),
        ("0.5 ns", TIME, 0.5),
        ("2 s", TIME, 2e9),
        ("60 %", FRACTION, 0.6),
        ("110%", FRACTION, 1.1),
        ("312 TFLOP/s", FLOPS, 312e12),
        ("1.41 GHz", FREQUENCY, 1.41e9),
        ("0.7 kW", POWER, 700.0),
    ],
)
def test_what_does_a_quantity_mean(text, kind, value):
    read = parse(text, kind)
    assert read == value
    assert isinstance(read, int if kind is BYTES else float)


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        ("32", BYTES, "has no unit", "'32 GiB'"),
        (32, BYTES, "has no unit", "'32 GiB'"),
        (450e9, RATE, "has no unit", "'450 GB/s' if B/s is meant"),
        ("450e9", RATE, "has no unit", "'450 GB/s' if B/s is meant"),
        ("60", FRACTION, "has no unit", "'60 %'"),
        (-1.5, BYTES, "has no unit", "'32 GiB'"),
        (float("nan"), RATE, "has no unit", "'450 GB/s'"),
        ("450 Gb/s", RATE, "counts bits", "450 Gb/s is 56.25 GB/s"),
        ("100 Gbps", RATE, "counts bits", "100 Gbps is 12.5 GB/s"),
        ("100 Gbit/s", RATE, "counts bits", "100 Gbit/s is 12.5 GB/s"),
        ("8 Gb", BYTES, "counts bits", "8 Gb is 1 GB"),
        ("8 Gb/s", BYTES, "counts bits", "'32 GiB'"),
        ("450 GB/s", BYTES, "is a rate, but a size is wanted", "'450 GB'"),
        ("450 GB", RATE, "is a size, but a rate is wanted", "'450 GB/s'"),
        ("5 ns", RATE, "is a time, but a rate is wanted", "'450 GB/s'"),
        ("32 gib", BYTES, "not a unit of size", "'32 GiB'"),
        ("32 KB", BYTES, "1000 or 1024", "kB"),
        ("8 GBps", RATE, "not a unit of rate", "'8 GB/s'"),
        ("312 TFLOPS", FLOPS, "not a unit", "'312 TFLOP/s'"),
        ("1,024 MiB", BYTES, "is not a size", "'32 GiB'"),
        ("1_024 MiB", BYTES, "is not a size", "'32 GiB'"),
        ("-1 GiB", BYTES, "is negative", "never below 0"),
        ("0.5 B", BYTES, "whole number of bytes", ""),
        ("16000 PiB", BYTES, "more than 8 EiB", ""),
        ("1e999999999 B", BYTES, "out of range", ""),
        ("1e-999999999 s", TIME, "out of range", ""),
        ("lots", BYTES, "is not a size", "'32 GiB'"),
        ("", BYTES, "is not a size", "'32 GiB'"),
        (None, BYTES, "not nothing", "'32 GiB'"),
        (True, BYTES, "not true", "'32 GiB'"),
        ([1], TIME, "not a list", "'1.5 us'"),
    ],
)
def test_is_what_cannot_be_meant_refused_with_a_hint(text, kind, message, hint):
    with pytest.raises(UnitError) as caught:
        parse(text, kind)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.slow
@given(st.integers(0, units.INT64_MAX))
def test_do_sizes_survive_writing_and_reading(value):
    assert parse(write(value, BYTES), BYTES) == value


@pytest.mark.parametrize("kind", [k for k in KINDS if k is not BYTES], ids=lambda k: k.noun)
def test_do_other_quantities_survive_writing_and_reading(kind):
    @given(st.floats(1e-12, 1e25))
    def survives(value):
        assert parse(write(value, kind), kind) == value

    survives()
    assert parse(write(0.0, kind), kind) == 0


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (32 * 2**30, BYTES, "32 GiB"),
        (131_900_000_000, BYTES, "131.9 GB"),
        (2039e9, RATE, "2039 GB/s"),
        (1500.0, TIME, "1.5 us"),
        (0.6, FRACTION, "60 %"),
    ],
)
def test_is_the_shortest_exact_text_written(value, kind, text):
    assert write(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, BYTES, "0 B"),
        (1023, BYTES, "1,023 B"),
        (1048575, BYTES, "1 MiB"),  # never 1,024 KiB
        (3.2 * 2**30, BYTES, "3.2 GiB"),
        (-5 * 2**20, BYTES, "-5 MiB"),
        (999.6, TIME, "1 us"),
        (1_500_000, TIME, "1.5 ms"),
        (float("inf"), TIME, "∞ ns"),
        (float("nan"), TIME, "?"),
        (0.6, FRACTION, "60 %"),
        (0, FRACTION, "0 %"),
        (3.352e12, RATE, "3.35 TB/s"),
    ],
)
def test_how_do_people_see_it(value, kind, text):
    assert show(value, kind) == text
