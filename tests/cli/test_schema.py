"""Does an editor that knows only the JSON Schema accept what gpusim accepts, and refuse what it refuses?"""

import json

import jsonschema
import pytest

from gpusim.base.errors import ConfigError
from gpusim.base.yaml import document, find
from gpusim.cli import schema
from gpusim.programs.managed.text import load

NO_FORM = "is not valid under any of the given schemas"


def faults(schema, value):
    """What a validator of JSON Schema complains about."""
    jsonschema.Draft202012Validator.check_schema(schema)
    return [f"{fault.json_path}: {fault.message}" for fault in jsonschema.Draft202012Validator(schema).iter_errors(value)]


@pytest.fixture(scope="module")
def schemas():
    return {which: json.loads(schema.text(which)) for which in schema.MODELS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["profile", "experiment", "program"])
def test_does_every_shipped_file_fit_its_schema(schemas, kind):
    asked = "managed program" if kind == "program" else kind
    names = find.names(asked)
    assert names
    for name in names:
        path = find.find(asked, name)
        assert faults(schemas[kind], document.read(path).data) == [], name
        head = path.read_text().splitlines()[:3]
        up = "../../" if kind == "program" else "../"
        assert f"# yaml-language-server: $schema={up}gpusim/cli/schema/{kind}.schema.json" in head


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("memory: 12", NO_FORM),
        ("memory: [60 %, 450 GB/s]", NO_FORM),
        ("memory: 8 Gb", NO_FORM),
        ("hardware: t4", "unexpected"),
        ("seed: -1", NO_FORM),
        ("seed: on", NO_FORM),
        ("policies: {evit: lru}", "unexpected"),
        ("options: {log: on}", "is not of type 'boolean'"),
        ("figures: [pie]", "is not one of"),
        ("jobs: 0", NO_FORM),
    ],
)
def test_does_the_schema_refuse_what_gpusim_refuses(schemas, line, complaint):
    data = document.loads(f"question: q\ntrace: a\nprofile: b\n{line}\n").data
    told = faults(schemas["experiment"], data)
    assert len(told) == 1
    assert complaint in told[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("arrays: {a: 4}", NO_FORM),
        ("arrays: {a: {bytes: 4 MiB, shape: [2, 2]}}", NO_FORM),
        ("arrays: {a: {bytes: 4 MiB, kind: mapped}}", NO_FORM),
        ("array: {a: 4 MiB}", "unexpected"),
        ("steps: []", "non-empty"),
        ("steps: [begin]", NO_FORM),
        ("steps: [{kernel: k}]", NO_FORM),
        ("steps: [{kernel: k, accesses: [{read: a, write: a}]}]", NO_FORM),
        ("steps: [{kernel: k, accesses: [{read: a, bytes: 4}]}]", NO_FORM),
        ("steps: [{kernel: k, accesses: [{read: a}], block: [8, 8, 8]}]", NO_FORM),
        ("steps: [{advise: a, hint: mostly_read}]", NO_FORM),
        ("steps: [{host_red: a}]", NO_FORM),
        ("steps: [{repeat: 2, steps: [{prefetch: a, to: disk}]}]", NO_FORM),
    ],
)
def test_does_the_schema_refuse_what_is_no_managed_program(schemas, tmp_path, text, complaint):
    data = {"steps": ["start", {"host_read": "a"}], "arrays": {"a": "4 MiB"}}
    assert faults(schemas["program"], data) == []
    data |= document.loads(text).data
    (told,) = faults(schemas["program"], data)
    assert complaint in told
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError):
        load(path)


@pytest.mark.parametrize(
    "line", ["memory: 60%", "memory: [capacity, .5 GiB]", "policies: {evict: [lru, {random: {}}]}", "seed: [1, 2]"]
)
def test_does_the_schema_accept_every_way_of_writing(schemas, line):
    data = document.loads(f"question: q\ntrace: [a, c]\nprofile: b\n{line}\n").data
    assert faults(schemas["experiment"], data) == []


@pytest.mark.parametrize("which", list(schema.MODELS))
def test_are_the_schema_files_up_to_date(which):
    path = schema.FOLDER / f"{which}.schema.json"
    assert path.read_text(encoding="utf-8") == schema.text(which), "python -m gpusim.cli.schema"


def test_does_the_schema_say_what_keys_mean(schemas):
    assert schemas["experiment"]["required"] == ["question", "trace", "profile"]
    rate = schemas["profile"]["$defs"]["Rate"]["properties"]["value"]
    assert rate["type"] == "string"
    assert "450 GB/s" in rate["description"]
    assert "copy engine" in schemas["profile"]["$defs"]["DeviceMemory"]["properties"]["copy_engine"]["description"]
