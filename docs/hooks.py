"""What mkdocs does beside rendering `docs/`: it makes two pages, ends one with the public names, and lists the notebooks
in the contents."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

_LIBRARY = "library.md"
# Page -> file of the repository's root.
_OF_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def library(root: Path) -> str:
    """The page of the library with all public names, from the table in `gpusim/base/public.py`; nothing is imported."""
    tree = ast.parse((root / "gpusim" / "base" / "public.py").read_text("utf-8"))
    names = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign))
    text = (root / "docs" / _LIBRARY).read_text("utf-8")
    return text + "\n## The public names\n\n" + "".join(_entry(name, where.replace(":", ".")) for name, where in names.items())


def _entry(name: str, where: str) -> str:
    return f"::: {where}\n    options:\n      heading: {name}\n      heading_level: 3\n      toc_label: {name}\n\n"


def on_config(config: Any) -> Any:
    """The notebooks that there are become a chapter of the contents, before the reference."""
    folder = Path(config.docs_dir, "notebooks")
    if found := [f"notebooks/{path.name}" for path in sorted(folder.glob("*.ipynb"))]:
        at = next(i for i, chapter in enumerate(config.nav) if "Reference" in chapter)
        config.nav.insert(at, {"Notebooks": found})
    return config


def on_files(files: Any, config: Any) -> Any:
    """The pages that are made; their links into `docs/` lead to the pages beside them."""
    from mkdocs.structure.files import File

    root = Path(config.docs_dir).parent
    made = {page: re.sub(r"\]\(docs/", "](", (root / file).read_text("utf-8")) for page, file in _OF_ROOT.items()}
    files.remove(files.get_file_from_path(_LIBRARY))
    for page, text in {_LIBRARY: library(root), **made}.items():
        files.append(File.generated(config, page, content=text))
    return files
