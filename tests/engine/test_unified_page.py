"""Does what docs/unified_memory.md shows work as written: its Python and its programs?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpusim.programs.managed import text

pytestmark = pytest.mark.documents

PAGE = (Path(__file__).parents[2] / "docs" / "unified_memory.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_its_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = (code for kind, code in BLOCKS if kind == "python")
    exec(compile(shown, "unified_memory.md", "exec"), {})
    assert re.fullmatch(r"[\d,]+ faults, [\d.]+ ms\n", capsys.readouterr().out)


def test_its_programs_are_read(tmp_path: Path) -> None:
    shown = [code for kind, code in BLOCKS if kind == "yaml" and code.startswith("arrays:")]
    assert len(shown) >= 3
    for number, code in enumerate(shown):
        file = tmp_path / f"p{number}.yaml"
        file.write_text(code, "utf-8")
        assert text.load(file).steps
