"""Do the documents' pictures and pages show the code as it is?"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from gpusim.cli.verb import ONCE, VERBS

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
    assert page.startswith((DOCS / "library.md").read_text("utf-8"))
    for name, where in PUBLIC.items():
        assert f"::: {where.replace(':', '.')}\n    options:\n      heading: {name}\n" in page


def test_the_gallery_shows_every_figure_of_the_docs() -> None:
    shown = set(re.findall(r"\(figures/(\w+)\.png\)", (DOCS / "gallery.md").read_text("utf-8")))
    assert shown == set(script("figures").NAMES)


def test_the_contents_name_every_page() -> None:
    """A page that is not in the contents is found by searching alone."""
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = set(re.findall(r"[\w/]+\.md", str(yaml.safe_load(text)["nav"])))
    made = {"contributing.md", "changelog.md"}
    assert pages == {path.name for path in DOCS.glob("*.md")} | made


def test_columns_of_a_docstring_become_a_list_and_sentences_stay() -> None:
    pytest.importorskip("griffe")
    markdown = script("docstrings").markdown
    assert markdown("Runs it.  Raises an error.\n\nmemory  bytes,\n        or a share\nlog     keep it") == (
        "Runs it.  Raises an error.\n\n- `memory` bytes,\n  or a share\n- `log` keep it"
    )
    assert markdown(">>> 1 + 1\n2") == "```pycon\n>>> 1 + 1\n2\n```"


# Names that stand for others, and files of other projects.
STAND_FOR = re.compile(r"NAME|KIND|FAMILY|policies/evict/smallest\.py|docs/source/en/")


def test_every_path_that_the_code_and_the_documents_name_is_there() -> None:
    """A docstring, message or page that sends its reader to a file of this repository."""
    folders = "docs|gpusim|tests|experiments|benchmarks|traces|hardware_profiles"
    named = re.compile(rf"(?<![\w/.-])((?:{folders})/[\w./-]*\w\.(?:md|py|yaml))\b")
    read = [*(ROOT / "gpusim").rglob("*.py"), *DOCS.glob("*.*"), *ROOT.glob("*.md"), *(ROOT / "experiments").glob("*.yaml")]
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in read if path.suffix in (".py", ".md", ".yaml")
        for name in named.findall(path.read_text("utf-8"))
    }  # fmt: skip
    assert len(found) > 100
    assert [at for at in sorted(found) if not (ROOT / at[1]).is_file() and not STAND_FOR.search(at[1])] == []


def test_every_verb_that_the_code_and_the_documents_name_is_one() -> None:
    """`gpusim VERB` in a docstring, message or page."""
    read = [*(ROOT / "gpusim").rglob("*.py"), *DOCS.glob("*.md"), *ROOT.glob("*.md")]
    found = {(path.name, verb) for path in read for verb in re.findall(r"`gpusim (\w[\w-]*)", path.read_text("utf-8"))}
    assert len({verb for _, verb in found}) > 15
    assert [at for at in sorted(found) if at[1] not in (*VERBS, *ONCE)] == []


def test_the_map_of_contributors_names_files_that_exist() -> None:
    """Of the rooms of this house: `room/file.py` in CONTRIBUTING.md is a file of gpusim."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rooms = set(script("house").PLACES)
    named = {f for f in re.findall(r"`(?:gpusim/)?((?:\w+/)+\w+\.py)`", text) if f.split("/")[0] in rooms}
    assert len(named) > 15
    assert [f for f in sorted(named) if not (ROOT / "gpusim" / f).is_file() and not re.search("NAME|FAMILY|KIND", f)] == []
