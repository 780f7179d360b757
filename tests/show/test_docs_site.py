"""Do the documents' pictures and pages show the code as it is?"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[next(i for i, up in enumerate(Path(__file__).parents) if (up / "pyproject.toml").is_file())]
DOCS = ROOT / "docs"


def script(name: str) -> ModuleType:
    """A program of the docs folder, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec and spec.loader
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_picture_of_the_house_has_the_imports_of_the_code() -> None:
    house = script("house")
    assert set(house.PLACES) == set(house.rooms())
    assert house.PICTURE.read_text("utf-8") == house.svg(), "python docs/house.py makes it again"


def test_an_arrow_that_follows_from_others_is_not_drawn_and_none_runs_up() -> None:
    house = script("house")
    down = {("show", "engine"), ("engine", "base"), ("show", "base")}
    assert house.drawn(down) == {("show", "engine"), ("engine", "base")}
    with pytest.raises(ValueError, match="run up"):
        house.drawn({("base", "engine")})


def test_every_public_name_has_its_place_on_the_page_of_the_library() -> None:
    from gpusim.base.public import PUBLIC

    page = script("hooks").library(ROOT)
    for name, where in PUBLIC.items():
        assert f"::: {where.replace(':', '.')}\n    options:\n      heading: {name}\n" in page


def test_the_gallery_shows_every_figure_of_the_docs() -> None:
    shown = set(re.findall(r"\(figures/(\w+)\.png\)", (DOCS / "gallery.md").read_text("utf-8")))
    assert shown == set(script("figures").NAMES)


def test_the_contents_name_every_page() -> None:
    """A page that is not in the contents is found by searching alone."""
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = set(re.findall(r"[\w/]+\.md", str(yaml.safe_load(text)["nav"])))
    made = {"library.md", "contributing.md", "changelog.md"}
    assert pages == {path.name for path in DOCS.glob("*.md")} | made


def test_columns_of_a_docstring_become_a_list_and_sentences_stay() -> None:
    pytest.importorskip("griffe")
    markdown = script("docstrings").markdown
    assert markdown("Runs it.  Raises an error.\n\nmemory  bytes,\n        or a share\nlog     keep it") == (
        "Runs it.  Raises an error.\n\n- `memory` bytes,\n  or a share\n- `log` keep it"
    )
    assert markdown(">>> 1 + 1\n2") == "```pycon\n>>> 1 + 1\n2\n```"


def test_the_map_of_contributors_names_files_that_exist() -> None:
    """Of the rooms of this house: `room/file.py` in CONTRIBUTING.md is a file of gpusim."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rooms = set(script("house").PLACES)
    named = {f for f in re.findall(r"`(?:gpusim/)?((?:\w+/)+\w+\.py)`", text) if f.split("/")[0] in rooms}
    assert len(named) > 15
    assert [f for f in sorted(named) if not (ROOT / "gpusim" / f).is_file() and not re.search("NAME|FAMILY|KIND", f)] == []
