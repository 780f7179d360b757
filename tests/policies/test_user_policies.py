"""Can a user's own policy, in each of its forms, be loaded, named, run, and blamed for its mistakes at its own line?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies import registry
from gpusim.policies.ask import EVICTED, FREED, INSERT, TOUCH
from gpusim.policies.contract import FACTS
from gpusim.policies.objects import digest
from gpusim.policies.trials.misses import replay
from gpusim.programs.generate.synth import training

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test begins with an empty cache of generated modules."""
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path / "cache"))


def own(folder: Path, text: str, name: str = "mine.py") -> registry.Registry:
    """The policies of a file with this text below its import line, which is line 1."""
    file = folder / name
    file.write_text("from gpusim import policy\n" + text, "utf-8")
    return registry.of(file)


def load(folder: Path, text: str, name: str = "mine.py") -> Any:
    """The last policy of such a file."""
    found = own(folder, text, name)
    return found.get("evict", [*found.own.values()][-1].name)


def score(chosen: Any, **values: float) -> float:
    facts = np.zeros(len(FACTS))
    for name, value in values.items():
        facts[list(FACTS).index(name)] = value
    return float(chosen.score(facts, chosen.params))


@pytest.mark.slow
def test_a_function_of_facts_becomes_a_compiled_score(tmp_path: Path) -> None:
    text = """
@policy.evict
def cost(size, last_use, now, staleness=1.0):
    '''Evict large tensors that have waited long.

    Source: this test.'''
    return -size * (now - last_use) ** staleness
"""
    chosen = load(tmp_path, text)
    entry = chosen.entry
    assert (entry.help, entry.source) == ("Evict large tensors that have waited long.", "this test.")
    assert (entry.facts, dict(entry.parameters), entry.knows) == (("size", "last_use", "now"), {"staleness": 1.0}, "past")
    assert entry.where == f"{tmp_path / 'mine.py'}:4"
    assert chosen.form == "score_now"
    assert score(chosen, size=10, last_use=2, now=5) == -30.0
    twice = own(tmp_path, text).get("evict", "cost(staleness=2, sample=8)")
    assert score(twice, size=10, last_use=2, now=5) == -90.0
    assert (twice.sample, twice.spec) == (8, "cost(staleness=2, sample=8)")
    assert hasattr(chosen.score, "py_func")  # numba did compile it


@pytest.mark.slow
def test_a_score_without_now_is_a_heap_and_the_future_makes_an_oracle(tmp_path: Path) -> None:
    chosen = load(tmp_path, "@policy.evict\ndef far(next_use, size):\n    return -next_use * size\n")
    assert (chosen.form, chosen.oracle, chosen.touches) == ("score", True, True)
    young = load(tmp_path, "@policy.evict\ndef young(arrived):\n    return -arrived\n", "young.py")
    assert (young.form, young.oracle, young.touches) == ("score", False, False)
    # The newest arrival leaves: page 0 stays, 1 and 2 replace each other; LRU would never hit.
    assert replay(np.array([0, 1, 2, 0, 1, 2]), 1, 2, young).hits == 1


@pytest.mark.slow
def test_the_next_process_finds_the_compiled_score_on_disk(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gpusim import policy\n@policy.evict\ndef big(size, weight=2.0):\n    return -size * weight\n"
    )
    script = """
from gpusim.policies import registry
print(sum(registry.of("mine.py").get("evict", "big").score.stats.cache_hits.values()))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GPUSIM_CACHE": str(tmp_path / "cache")}

    def hits() -> int:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert (hits(), hits()) == (0, 1)
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text().replace("* weight", "- weight"))
    assert hits() == 0


def test_what_numba_cannot_compile_runs_on_columns(tmp_path: Path) -> None:
    text = """
import json

@policy.evict
def model(size, uses, scale=1.0):
    weights = json.loads('{"size": 2}')
    return -size * weights["size"] * scale + uses
"""
    chosen = load(tmp_path, text)
    assert chosen.form == "ask"
    assert "json" in chosen.uncompiled or "loads" in chosen.uncompiled
    ask = chosen.new_ask()
    ask.start(10, 100, 0)
    units, sizes = np.array([2, 3, 5]), np.arange(10)
    columns = {"size": sizes[units].astype(float), "uses": np.array([0.0, 9.0, 0.0])}
    # Scores -4, 3, -10: 5 leaves first, then 2; 6 bytes need both.
    assert ask.victims(6, np.zeros(10, np.uint8), sizes, units, columns) == [5, 2]
    assert ask.victims(5, np.zeros(10, np.uint8), sizes, units, columns) == [5]


CLASS = """
@policy.evict
class my_lru:
    def __init__(self, batch=1):
        self.order, self.batch = {}, batch
    def insert(self, unit, size):
        self.order[unit] = size
    def touch(self, unit, size):
        self.order[unit] = self.order.pop(unit)
    def remove(self, unit, size):
        del self.order[unit]
    def victim(self, need, locked):
        return [u for u in self.order if not locked[u]][:self.batch]
"""


@pytest.mark.parametrize("batch", [1, 3])
def test_a_class_with_verbs_is_told_and_asked(tmp_path: Path, batch: int) -> None:
    ask = own(tmp_path, CLASS).get("evict", f"my_lru(batch={batch})").new_ask()
    ask.start(10, 100, 0)
    kinds = [INSERT, INSERT, INSERT, INSERT, TOUCH, FREED]
    ask.events(np.array(kinds), np.array([1, 2, 3, 4, 1, 4]), np.full(6, 4))
    locked = np.zeros(10, np.uint8)
    locked[2] = 1
    chosen = ask.victims(5, locked, np.full(10, 4), np.array([1, 3]), {})
    assert chosen == [3, 1]
    ask.events(np.array([EVICTED, EVICTED, INSERT]), np.array([3, 1, 7]), np.full(3, 4))  # it already knows the first two
    assert ask.victims(4, np.zeros(10, np.uint8), np.full(10, 4), np.array([2, 7]), {})[0] == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("9", "chose 9, which is not resident"),
        ("2", "chose 2, which is locked"),
        ("'a'", "chose 'a', which is not a unit"),
        ("[1, 1]", "chose 1, which is named twice"),
        ("1 // 0", "raised ZeroDivisionError"),
    ],
)
def test_a_class_that_answers_nonsense_is_shown_its_line(tmp_path: Path, answer: str, says: str) -> None:
    chosen = load(tmp_path, f"@policy.evict\nclass wrong:\n    def victim(self, need, locked):\n        return {answer}\n")
    ask = chosen.new_ask()
    ask.start(10, 100, 0)
    ask.events(np.array([INSERT, INSERT]), np.array([1, 2]), np.array([4, 4]))
    locked = np.zeros(10, np.uint8)
    locked[2] = 1
    with pytest.raises(PolicyError, match=re.escape(says)) as caught:
        ask.victims(4, locked, np.full(10, 4), np.array([1]), {})
    assert re.search(r"mine\.py:[45]$", caught.value.where)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return size / 0 * 0", "returned nan for size=3"),
        ("return", "returned None, not one number for each of 2 candidates"),
        ("return 'large'", "returned 'large', a str, not one number for each of 2 candidates"),
        ("return [None, 1.0]", "returned [None, 1.0], a list, not"),
        ("return [1.0, [2.0]]", "returned [1.0, [2.0]], a list, not"),
        ("return [1, 2, 3]", "returned [1, 2, 3], a list, not"),
        ("return size[:1].repeat(3)", "returned an array of shape (3,), not"),
        ("return size.astype(object)", "returned an array of shape (2,) of type object, not"),
        ("return size * 1j", "returned an array of shape (2,) of type complex128, not"),
        ("raise KeyError('weights')", "raised KeyError: 'weights'"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_columns_that_are_no_scores_are_shown_their_line(tmp_path: Path, body: str, says: str) -> None:
    chosen = load(tmp_path, f"@policy.evict(columns=True)\ndef wrong(size):\n    {body}\n")
    ask = chosen.new_ask()
    with pytest.raises(PolicyError, match=re.escape(says)) as caught:
        ask.victims(4, np.zeros(2, np.uint8), np.array([3, 4]), np.array([0, 1]), {"size": np.array([3.0, 4.0])})
    assert re.search(r"mine\.py:[234]$", caught.value.where)


@pytest.mark.slow
def test_a_compiled_score_that_is_not_a_number_is_an_error_with_its_line(tmp_path: Path) -> None:
    chosen = load(tmp_path, "@policy.evict\ndef wrong(size):\n    return 0 * size / (size - 3)\n")
    assert score(chosen, size=4) == 0.0
    with pytest.raises(PolicyError, match=r"mine\.py:3: policy 'wrong' returned nan"):
        score(chosen, size=3)
    with pytest.raises(PolicyError, match="returned nan"):
        replay(np.array([0, 1]), np.array([1, 3]), 5, chosen)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@policy.evict\ndef f(sise):\n    return sise\n", r"mine.py:3: policy 'f' reads 'sise'.*did you mean 'size'\?"),
        ("@policy.evict\ndef f(size, k='a'):\n    return size\n", "parameter 'k' of policy 'f' is 'a', not a number"),
        ("@policy.evict\ndef f(*facts):\n    return 0\n", r"takes '\*facts'"),
        ("@policy.evict\ndef lru(size):\n    return size\n", "mine.py:3: evict policy 'lru' is built in"),
        ("@policy.evict\nclass f:\n    def insert(self, unit, size): ...\n", r"no method 'victim"),
        ("@policy.evict\nclass f:\n    def __init__(self, k): ...\n    def victim(self, n, l): ...\n", "wants 'k'"),
        ("x = 1\n", "the file registers no policy"),
        ("x = 1 / 0\n", "mine.py:2: ZeroDivisionError"),
        ("def f(:\n", "mine.py:2: SyntaxError"),
    ],
)
def test_mistakes_are_found_when_the_file_is_read(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        chosen = load(tmp_path, text)
        chosen.new_ask()


MINE = "@policy.evict\ndef mine(size):\n    return size\n"


@pytest.mark.slow
def test_two_files_of_one_experiment_may_not_use_one_name_but_a_file_may_be_read_again(tmp_path: Path) -> None:
    load(tmp_path, MINE, "other.py")
    assert load(tmp_path, MINE).facts == ("size",)
    assert load(tmp_path, MINE.replace("size", "uses")).facts == ("uses",)
    assert registry.of(tmp_path / "mine.py", tmp_path / "mine.py").find("evict", "mine").facts == ("uses",)
    with pytest.raises(PolicyError, match=r"registered twice, first at .*mine\.py:3"):
        registry.of(tmp_path / "mine.py", tmp_path / "other.py")
    with pytest.raises(PolicyError, match="there is no evict policy 'mine'"):
        registry.get("evict", "mine")


TRAINING = training(steps=2, layers=4)


def swapped(folder: Path) -> int:
    """How many tensors leave a small memory under the policy `mine` of the file in this folder."""
    done = simulate(
        TRAINING, catalogue.load("a100-pcie-40gb"), place="first_fit", evict="mine", use=[folder / "mine.py"],
        capacity_bytes=int(0.6 * sum(sorted(TRAINING.size)[-12:])),
    )  # fmt: skip
    return int(done.metrics["swap_outs"])


@pytest.mark.slow
def test_two_policies_of_one_name_do_not_know_of_each_other(tmp_path: Path) -> None:
    """Large tensors first and small ones first, one after the other and in two threads at once."""
    for name, score in (("large", "-size"), ("small", "size")):
        (tmp_path / name).mkdir()
        text = f"@policy.evict\ndef mine(size, weight=1.0):\n    return weight * {score}\n"
        (tmp_path / name / "mine.py").write_text("from gpusim import policy\n" + text)
    large, small = tmp_path / "large", tmp_path / "small"
    alone = {folder: swapped(folder) for folder in (large, small)}
    assert 0 < alone[large] != alone[small] > 0
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(swapped, [large, small] * 4)) == [alone[large], alone[small]] * 4


@pytest.mark.slow
def test_policies_of_one_name_from_one_line_of_code_are_what_they_were_made_with() -> None:
    def made(weight: float) -> Any:
        @policy.evict
        def mine(size):  # type: ignore[no-untyped-def]
            return weight * size

        return mine

    first, second = made(2.0), made(-3.0)
    assert [score(registry.get("evict", each), size=10) for each in (first, second, first)] == [20.0, -30.0, 20.0]
    with pytest.raises(PolicyError, match="evict policy 'mine' is registered twice"):
        registry.of(first, second)


@pytest.mark.slow
def test_an_object_is_given_parameters_as_python_does() -> None:
    @policy.evict
    def mine(size, weight=1.0):  # type: ignore[no-untyped-def]
        return weight * size

    chosen = registry.get("evict", partial(mine, weight=4))
    assert (chosen.spec, score(chosen, size=10)) == ("mine(weight=4)", 40.0)
    assert registry.get("evict", chosen) is chosen
    with pytest.raises(PolicyError, match=r"no parameter 'wieght' \(did you mean 'weight'\?\)"):
        registry.get("evict", partial(mine, wieght=4))
    with pytest.raises(PolicyError, match="'mine' is a policy of kind evict, not place"):
        registry.get("place", mine)
    with pytest.raises(PolicyError, match=r"swapped is not a policy \(give a name, or decorate it with @policy.evict\)"):
        registry.get("evict", swapped)


def test_a_digest_follows_what_a_function_does_and_refers_to() -> None:
    table = np.arange(3)

    def weight(size: float) -> float:
        return size * 2.0

    def score(size: float, k: float = 1.0) -> float:
        """Text."""
        return weight(size) * k + table[0]

    first = digest(score)
    assert digest(score) == first
    table[0] = 7
    second = digest(score)
    score.__defaults__ = (2.0,)
    third = digest(score)
    weight.__code__ = (lambda size: size * 3.0).__code__
    assert len({first, second, third, digest(score)}) == 4
    assert digest(lambda: object) == digest(lambda: object) and digest([object()]) != digest([object()])


@pytest.mark.slow
def test_a_policy_typed_at_a_prompt_works_without_a_file() -> None:
    space: dict[str, Any] = {"policy": policy}
    exec("@policy.evict\ndef typed(size):\n    return -size\n", space)
    assert score(registry.get("evict", space["typed"]), size=4) == -4.0


@pytest.mark.slow
def test_the_examples_of_the_documentation_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "policies.md").read_text("utf-8"), re.S | re.M)
    files = {m[1]: block for block in blocks if (m := re.match(r"# file: (\S+)\n", block))}
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    script = "\n".join(block for block in blocks if block not in files.values())
    script += "\nfor file in ('my_columns.py', 'my_class.py'):\n    for entry in registry.of(file).own.values():\n"
    script += "        print(entry.name, registry.get('evict', entry.target).form)\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["lru", "cheap_to_reload", "belady"]
    assert int(lines[2].split()[1]) < int(lines[0].split()[1])
    assert lines[3] == "policy 'cost' has no parameter 'stalness' (did you mean 'staleness'?)"
    assert int(lines[4].split()[0]) < int(lines[4].split()[-1]) == 1000
    assert lines[5] == "finished planned"
    assert lines[6:] == ["ranks ask", "protected_lru ask"]


@pytest.mark.parametrize(
    ("arguments", "said"), [("S, X, *more", r"takes '\*more'"), ("S, X, params", "takes 3 arguments"), ("*, S", "takes 'S'")]
)
def test_a_verb_with_other_arguments_than_its_contracts_is_told_at_its_line(tmp_path: Path, arguments: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"""from gpusim import policy

@policy.release
class odd:
    def state(capacity, params):
        return capacity

    def release({arguments}):
        return 0
""")
    (entry,) = registry.of(file).own.values()
    with pytest.raises(PolicyError, match=f"'release' of release policy 'odd' {said}; its contract has 8 arguments") as caught:
        registry.get("release", entry.target)
    assert caught.value.where == f"{file}:8"
