"""Does `pytorch` answer as the real library did: every option, four releases, compiled and as plain Python?

The cases are the library's own answers to random programs, one for each family of options (tests/support/fuzz_pytorch.py wrote
them, and compares millions more).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytorch_oracle import Model, difference, read_cases
from pytorch_programs import FAMILIES

pytestmark = pytest.mark.oracle

CASES = Path(__file__).parents[1] / "data" / "pytorch_allocator"
RELEASES = ["2.11", "2.12", "2.13", "2.15"]


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_every_family_of_options(release: str) -> None:
    families, actions = [], set()
    for family, case, answers in read_cases((CASES / f"{release}.txt").read_text()):
        assert difference(case, answers, Model(case, release).run()) == "", family
        families.append(family)
        actions |= {line.split()[1] for line in answers if line.startswith("+")}
    assert families == list(FAMILIES)
    assert len(actions) == 8  # each kind of event happens


def test_a_wrong_answer_is_a_difference() -> None:
    _, case, answers = next(read_cases((CASES / "2.15.txt").read_text()))
    wrong = [line.replace("+ alloc 0 ", "+ alloc 512 ") for line in answers]
    assert wrong != answers and "alloc" in difference(case, wrong, Model(case, "2.15").run())


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_pytorch_cases import CASES, Model, difference, read_cases
for family, case, answers in read_cases((CASES / "2.12.txt").read_text()):
    print(family, difference(case, answers, Model(case, "2.12").run()))
"""


@pytest.mark.slow
def test_interpreted_as_compiled() -> None:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    tests = str(Path(__file__).parents[1] / "support")
    done = subprocess.run([sys.executable, "-c", SCRIPT, tests], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [*(f"{family} " for family in FAMILIES), ""]
