"""JSON Schema of the YAML files, for editors: `# yaml-language-server: $schema=...` on a file's first line.

`python -m gpusim.cli.schema` writes gpusim/cli/schema/*.schema.json anew.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.yaml.descriptions import descriptions, models

LOADS = ("gpusim.experiment", "gpusim.machine", "gpusim.programs.managed")  # packages whose modules are imported by name
# which -> (module, model)
MODELS = {
    "experiment": ("gpusim.experiment.spec", "Experiment"),
    "profile": ("gpusim.machine.profile", "Profile"),
    "machine": ("gpusim.machine.topology.spec", "MachineFile"),
    "program": ("gpusim.programs.managed.text_model", "ProgramText"),
}
FOLDER = Path(__file__).with_name("schema")


def schema(which: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of "experiment", "profile", "machine" or (managed) "program"."""
    if which not in MODELS:
        raise GpusimError(f"there is no schema '{which}'", hint=suggest(which, MODELS))
    module, name = MODELS[which]
    model = getattr(import_module(module), name)
    made = _described(TypeAdapter(model).json_schema(mode="validation"), model)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"gpusim {which}"}
    return head | {key: _bare(value) for key, value in made.items() if key != "title"}


def text(which: str) -> str:
    """The file's content."""
    return json.dumps(schema(which), indent=1, ensure_ascii=False) + "\n"


def _described(made: dict[str, Any], model: type) -> dict[str, Any]:
    """With the text under each field of the model, and of those that it is made of, as description."""
    for each in models(model):
        node = made if each is model else made["$defs"].get(each.__name__, {})
        for name, text in descriptions(each).items():
            if name in node.get("properties", {}):
                node["properties"][name]["description"] = text
    return made


def _bare(node: Any) -> Any:
    """Without the titles that pydantic makes from names, and without defaults that are no plain YAML."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("properties"), dict):
        node = node | {"properties": {key: _bare(value) for key, value in node["properties"].items()}}
    return {
        key: value if key == "properties" else _bare(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str)) and key != "default"
    }


def main() -> None:
    """Write all schema files."""
    FOLDER.mkdir(exist_ok=True)
    for which in MODELS:
        (FOLDER / f"{which}.schema.json").write_text(text(which), encoding="utf-8")


if __name__ == "__main__":
    main()
