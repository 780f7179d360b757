"""Does an editor that knows only the JSON Schema accept what gpusim accepts, and refuse what it refuses?"""

import json
import re

import pytest

from gpusim.base.errors import ConfigError
from gpusim.base.yaml import document, find
from gpusim.cli import schema
from gpusim.programs.managed.text import load

TYPES = {
    "string": str, "object": dict, "array": list, "boolean": bool, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip


def is_a(value, kind):
    return isinstance(value, TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)


def faults(node, value, root, path=""):
    """What a validator of JSON Schema would complain about; the keywords that our schemas use, no others."""
    if "$ref" in node:
        node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    skipped = ("$schema", "$defs", "title", "description")
    found = []
    for key, want in sorted(node.items(), key=lambda item: item[0] != "type"):  # the others count on the type
        if key in skipped:
            continue
        if key == "type":
            kinds = [want] if isinstance(want, str) else want
            if not any(is_a(value, k) for k in kinds):
                return [f"{path}: {value!r} is not {want}"]
        elif key in ("oneOf", "anyOf"):
            fits = sum(not faults(option, value, root, path) for option in want)
            found += [] if fits == 1 or (key == "anyOf" and fits) else [f"{path}: {value!r} fits {fits} of {key}"]
        elif key == "const":
            found += [] if value == want else [f"{path}: {value!r} is not {want!r}"]
        elif key == "enum":
            found += [] if value in want else [f"{path}: {value!r} is not in {want}"]
        elif key == "pattern":
            found += [] if not isinstance(value, str) or re.search(want, value) else [f"{path}: {value!r} !~ {want}"]
        elif key in ("minLength", "minItems"):
            found += [] if len(value) >= want else [f"{path}: too short"]
        elif key in ("maxLength", "maxItems"):
            found += [] if len(value) <= want else [f"{path}: too long"]
        elif key == "minimum":
            found += [] if not isinstance(value, (int, float)) or value >= want else [f"{path}: below {want}"]
        elif key == "maximum":
            found += [] if not isinstance(value, (int, float)) or value <= want else [f"{path}: above {want}"]
        elif key == "required":
            found += [f"{path}: {name} is missing" for name in want if isinstance(value, dict) and name not in value]
        elif key == "properties":
            for name in set(want) & set(value):
                found += faults(want[name], value[name], root, f"{path}.{name}")
        elif key == "additionalProperties":
            for name in set(value) - set(node.get("properties", ())):
                at = f"{path}.{name}"
                found += [f"{at}: unknown"] if want is False else faults(want, value[name], root, at)
        elif key == "items":
            if isinstance(value, list):
                found += [f for i, item in enumerate(value) for f in faults(want, item, root, f"{path}[{i}]")]
        elif key == "prefixItems":
            found += [f for w, item in zip(want, value, strict=False) for f in faults(w, item, root, path)]
        else:
            raise AssertionError(f"keyword {key} is not known to this test")
    return found


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
        assert faults(schemas[kind], document.read(path).data, schemas[kind]) == [], name
        head = path.read_text().splitlines()[:3]
        up = "../../" if kind == "program" else "../"
        assert f"# yaml-language-server: $schema={up}gpusim/cli/schema/{kind}.schema.json" in head


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("memory: 12", "fits 0"),
        ("memory: [60 %, 450 GB/s]", "fits 0"),
        ("memory: 8 Gb", "fits 0"),
        ("hardware: t4", "unknown"),
        ("seed: -1", "fits 0"),
        ("seed: on", "fits 0"),
        ("policies: {evit: lru}", "unknown"),
        ("options: {log: on}", "is not boolean"),
        ("figures: [pie]", "is not in"),
        ("jobs: 0", "fits 0"),
    ],
)
def test_does_the_schema_refuse_what_gpusim_refuses(schemas, line, complaint):
    data = document.loads(f"question: q\ntrace: a\nprofile: b\n{line}\n").data
    told = faults(schemas["experiment"], data, schemas["experiment"])
    assert len(told) == 1
    assert complaint in told[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("arrays: {a: 4}", "fits 0"),
        ("arrays: {a: {bytes: 4 MiB, shape: [2, 2]}}", "fits 0"),
        ("arrays: {a: {bytes: 4 MiB, kind: mapped}}", "fits 0"),
        ("array: {a: 4 MiB}", "unknown"),
        ("steps: []", "too short"),
        ("steps: [begin]", "fits 0"),
        ("steps: [{kernel: k}]", "fits 0"),
        ("steps: [{kernel: k, accesses: [{read: a, write: a}]}]", "fits 0"),
        ("steps: [{kernel: k, accesses: [{read: a, bytes: 4}]}]", "fits 0"),
        ("steps: [{kernel: k, accesses: [{read: a}], block: [8, 8, 8]}]", "fits 0"),
        ("steps: [{advise: a, hint: mostly_read}]", "fits 0"),
        ("steps: [{host_red: a}]", "fits 0"),
        ("steps: [{repeat: 2, steps: [{prefetch: a, to: disk}]}]", "fits 0"),
    ],
)
def test_does_the_schema_refuse_what_is_no_managed_program(schemas, tmp_path, text, complaint):
    data = {"steps": ["start", {"host_read": "a"}], "arrays": {"a": "4 MiB"}}
    assert faults(schemas["program"], data, schemas["program"]) == []
    data |= document.loads(text).data
    (told,) = faults(schemas["program"], data, schemas["program"])
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
    assert faults(schemas["experiment"], data, schemas["experiment"]) == []


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
