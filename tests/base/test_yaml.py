"""Is a YAML file read as YAML 1.2, and is everything that is wrong with its form told at its place?"""

import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.base.errors import ConfigError
from gpusim.base.yaml import document, find, validate
from gpusim.experiment.spec import Experiment
from gpusim.machine.profile import Profile


def read(text):
    return document.loads(text, "f.yaml")


def refused(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("450e9", 450e9),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("12", 12),
        ("-3", -3),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),  # octal in YAML 1.1
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("12:30", "12:30"),  # 750 in YAML 1.1
        ("2020-01-01", "2020-01-01"),  # a date in YAML 1.1
        ("1_000", "1_000"),
        ("60 %", "60 %"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("<<", "<<"),
        ("1e999", "1e999"),
        (".inf", float("inf")),
        ("9" * 5000, "9" * 5000),  # too long for a number that anyone means
    ],
)
def test_what_is_a_scalar(text, value):
    got = read(f"key: {text}").data["key"]
    assert got == value
    assert type(got) is type(value)


def test_where_does_everything_stand():
    doc = read("a: 1\nb:\n  - {c: xyz, d: [1, 2]}\n")
    assert doc.data == {"a": 1, "b": [{"c": "xyz", "d": [1, 2]}]}
    assert doc.values[("b", 0, "c")] == (3, 9, 3)
    assert doc.keys[("b", 0, "d")] == (3, 14, 1)
    assert doc.values[("b", 0, "d", 1)] == (3, 21, 1)


def test_is_a_key_given_twice_noted_while_the_rest_is_read():
    doc = read("a: 1\nb: 2\na: {c: 3}\nd: 4\n")
    assert doc.data == {"a": 1, "b": 2, "d": 4}
    assert [(p.line, p.col, p.message, p.hint) for p in doc.problems] == [
        (3, 1, "key 'a' is given twice", "its first value is on line 1")
    ]
    assert doc.values[("a",)] == (1, 4, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object:os.system x", "tag 'tag:yaml.org,2002:python/object:os.system' is not allowed"),
        ("a: !!int '5'", "is not allowed"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("? [a, b]\n: 1", "a key must be a plain word"),
        ("a: *b", "names no finished anchor"),
        ("a: &x [*x]", "names no finished anchor"),
    ],
)
def test_are_other_mistakes_of_form_noted(text, message):
    assert any(message in problem.message for problem in read(text).problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("a: 1\n\tb: 2\n", "f.yaml:2:1: a tab stands where YAML wants spaces"),
        ("a: b: c", "f.yaml:1:5: mapping values are not allowed"),
        ("a: [1, 2", "did not find expected ',' or ']'"),
        ("a: [1, 2\nb: 3", "close the bracket that is open since line 1"),
        ("a: 'x", "f.yaml:1:4: what begins here does not end"),
        ("a: " + "[" * 60 + "]" * 60, "nested more than 40 deep"),
        ("a: [" + "1," * 60_000 + "]", "holds more than 50,000 values"),
        ("a: \x07", "f.yaml"),
    ],
)
def test_is_an_unreadable_file_refused_in_a_sentence(text, message):
    said = refused(text)
    assert message in said
    assert "Traceback" not in said


def test_does_an_alias_bomb_stay_small():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "holds more than 50,000 values" in refused("\n".join(lines))


def test_may_an_alias_be_used_for_what_it_is_for():
    assert read("a: &x {b: 1}\nc: *x").data == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x93NUMPY\xff\xfe", "is not text in UTF-8"),
        (b"a: 1\0", "is a binary file, not YAML"),
        (b"#" * (1 << 20) + b"#", "is larger than 1 MiB"),
    ],
)
def test_is_a_file_that_is_no_yaml_refused(tmp_path, raw, message):
    path = tmp_path / "f.yaml"
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=message):
        document.read(path)


def test_is_a_missing_file_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nope.yaml: cannot be read: No such file"):
        document.read(tmp_path / "nope.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        document.read(tmp_path)


def test_is_a_byte_order_mark_passed_over(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes("a: ü".encode("utf-8-sig"))
    assert document.read(path).data == {"a": "ü"}


@pytest.mark.slow
@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"#%@,?\n\t 01.~\0\x85\u2028<"), max_size=60))
@settings(max_examples=400)
def test_does_no_text_whatever_break_the_reader(text):
    try:
        doc = document.loads(text, "f.yaml")
    except ConfigError as error:
        assert str(error).startswith("f.yaml")
    else:
        assert set(doc.keys) <= set(doc.values)
        assert all(str(p).startswith("f.yaml:") for p in doc.problems)


WRONG = [None, 5, -1.5, True, "x", "1 GB", "60 %", [], [[1]], {}, {"a": {"b": 1}}, ["x", 2], float("nan"), 10**29]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("profile", "v100-pcie-32gb"), ("experiment", "eviction")])
def test_is_every_wrong_value_anywhere_told_at_its_place(kind, name):
    """Each value of a shipped file in turn is replaced by what does not belong there."""
    model = {"profile": Profile, "experiment": Experiment}[kind]
    doc = document.read(find.find(kind, name))
    refusals = 0
    for path in doc.values:
        if not path:
            continue
        for wrong in WRONG:
            data = copy.deepcopy(doc.data)
            parent = data
            for step in path[:-1]:
                parent = parent[step]
            parent[path[-1]] = wrong
            try:
                validate.build(model, replace(doc, data=data))
            except ConfigError as error:
                refusals += 1
                assert all(0 < p.line <= len(doc.text.splitlines()) for p in error.problems), (path, wrong)
                assert str(error).startswith(doc.file + ":")
                assert not any(p.message.startswith((":", "''")) for p in error.problems), str(error)
    assert refusals > 100
