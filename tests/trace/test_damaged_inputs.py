"""Does what a user gives end in an answer or in one sentence, however damaged: recordings, traces, profiles, YAML, CSV?"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from damaged import DEEP, HUGE, damaged_bytes, damaged_lines, damaged_tree, limited, outcome, text
from fuzz_importers import JSON_LINES, TABLES, TREES, problem, warm

from gpusim.base.errors import ConfigError, GpusimError, TraceError
from gpusim.calibrate import rows
from gpusim.machine.profile import load_file
from gpusim.programs.recordings import FORMATS, import_trace
from gpusim.trace.files import load_trace, save_trace

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_recording_is_a_trace_or_a_sentence(format: str, tmp_path: Path) -> None:
    warm(format, tmp_path / "x")
    wrong = {seed: found for i in range(60) if (found := problem(format, seed := f"test/{format}/{i}", tmp_path / "x"))}
    assert not wrong


# --- what was seen ---


def refused(path: Path, words: list[str], **options: Any) -> None:
    with pytest.raises(TraceError) as error, limited(1_000_000):
        import_trace(path, **options)
    said = str(error.value)
    assert said.startswith(str(path)) and "\n" not in said and len(said) < 500
    for word in words:
        assert word in said, said


def node(number: int, parent: int) -> dict[str, Any]:
    return json.loads(json.dumps(TREES["execution-trace"][0]["nodes"][0])) | {"id": number, "parent": parent}  # type: ignore[no-any-return]


@pytest.mark.slow
def test_parents_that_form_a_ring(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [node(7, 5), node(5, 9), node(9, 5)]}))
    refused(path, ["node 5 is inside itself: parents form the ring 5 -> 9 -> 5"])
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [node(n, n - 1) for n in range(1, 2100)]}))
    refused(path, ["stands inside", "at most 2,000"])
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [node(1, 1), node(2, 1), node(3, 99)]}))
    assert import_trace(path).ops, "a root may be its own parent, and a parent may be missing"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("pid", [1], ["'pid' is [1], neither a number nor text"]),
        ("pid", HUGE, ["more than 4,300 digits"]),
        ("ts", float("inf"), ["not one that a profiler writes"]),
        ("name", 5, ["'name' is 5, not text"]),
    ],
)
def test_fields_of_a_profiler_event(field: str, value: Any, words: list[str], tmp_path: Path) -> None:
    tree = json.loads(json.dumps(TREES["kineto"][0]))
    tree["traceEvents"][2][field] = value
    (tmp_path / "k.json").write_text(text(tree))
    refused(tmp_path / "k.json", words)


def test_the_device_of_a_kernel(tmp_path: Path) -> None:
    tree = json.loads(json.dumps(TREES["kineto"][0]))
    kernel = next(e for e in tree["traceEvents"] if e.get("cat") == "kernel")
    del kernel["args"]["device"]
    for device, words in (("GPU", ["'pid' is GPU, not a whole number"]), ([0], ["'pid' is [0], not a whole number"])):
        kernel["pid"] = device
        (tmp_path / "k.json").write_text(text(tree))
        refused(tmp_path / "k.json", words)
    kernel["pid"] = "0"
    (tmp_path / "k.json").write_text(text(tree))
    assert import_trace(tmp_path / "k.json").ops == 2, "old profiles write numbers as text"


def test_one_request_of_many_tokens(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(TABLES["azure-llm"].replace(",17,3", ",17,100000000"))
    refused(path, [":3:", "this request of 17 + 100,000,000 tokens alone", "budget of 200,000,000", "--option budget=N"])
    path.write_text(TABLES["azure-llm"])
    refused(path, [":2:", "above the budget of 10"], budget="10")
    path.write_text(TABLES["azure-llm"].replace(",17,3", ",100000000,3"))
    refused(path, [":3:", "a prompt of 100,000,000 tokens takes", "which no kernel computes"])
    path.write_text(TABLES["azure-llm"])
    refused(path, ["batch x stride is at most"], batch="100000", stride="100000")


def test_the_budget_counts_what_the_trace_holds(tmp_path: Path) -> None:
    """The estimate is no less than the accesses to blocks that there are, and no more than half as many again."""
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:15:46.68,3740,440\n" * 20)
    trace = import_trace(path)
    accesses = len(trace.read_id) + len(trace.write_id) - trace.ops  # less the weights
    import_trace(path, budget=str(3 * accesses // 2))
    refused(path, ["above the budget"], budget=str(accesses - 1))


def test_packed_files(tmp_path: Path) -> None:
    import lzma

    path = tmp_path / "x.xz"
    path.write_bytes(lzma.compress(b"hello"))
    refused(path, ["packed with xz", "only gzip is read", "unpack it first"])


# --- trace files, profiles, experiments, measurements ---


def _trace_file(folder: Path) -> dict[str, bytes]:
    (folder / "r").write_text("".join(text(line) + "\n" for line in JSON_LINES["recorder"]))
    save_trace(import_trace(folder / "r"), folder / "good.npz")
    with zipfile.ZipFile(folder / "good.npz") as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_damaged_lzma_member(tmp_path: Path) -> None:
    members = _trace_file(tmp_path)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as file:
        for name, data in members.items():
            file.writestr(name, data)
    assert load_trace(tmp_path / "x.npz").ops == 1
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[60:90] = bytes(30)
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(TraceError, match="cut short or damaged"):
        load_trace(tmp_path / "x.npz")


@pytest.mark.slow
def test_a_damaged_trace_file_is_a_trace_or_a_sentence(tmp_path: Path) -> None:
    members, path = _trace_file(tmp_path), tmp_path / "x.npz"
    for i in range(200):
        random, changed, out = Random(f"npz {i}"), dict(members), io.BytesIO()
        name = random.choice(["header.json", *members])
        if name == "header.json" and random.random() < 0.7:
            changed[name] = text(damaged_tree(json.loads(members[name]), random)).encode()
        else:
            changed[name] = damaged_bytes(members[name], random)
        with zipfile.ZipFile(out, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))) as file:
            for each, data in changed.items():
                file.writestr(each, data)
        path.write_bytes(damaged_bytes(out.getvalue(), random) if random.random() < 0.5 else out.getvalue())
        error = outcome(lambda: load_trace(path), TraceError)
        assert error is None or (str(error).startswith(str(path)) and "\n" not in str(error)), i


def _yaml(tree: Any) -> str:
    return str(yaml.safe_dump(tree, sort_keys=False)).replace(HUGE, "9" * 5000).replace(DEEP, "[" * 3000 + "]" * 3000)


@pytest.mark.slow
def test_a_damaged_profile_is_a_profile_or_sentences(tmp_path: Path) -> None:
    tree, path = yaml.safe_load((ROOT / "hardware_profiles/a10.yaml").read_text("utf-8")), tmp_path / "a.yaml"
    for i in range(25):
        random = Random(f"profile {i}")
        path.write_text(_yaml(damaged_tree(tree, random)))
        outcome(lambda: load_file(path), GpusimError, calls=3_000_000)


@pytest.mark.slow
def test_a_damaged_experiment_is_an_experiment_or_sentences(tmp_path: Path) -> None:
    from gpusim.experiment.load import experiment

    files, path = sorted((ROOT / "experiments").glob("*.yaml")), tmp_path / "a.yaml"
    experiment(str(files[0]))
    for i in range(25):
        random = Random(f"experiment {i}")
        data = random.choice(files).read_bytes()
        if random.random() < 0.6:
            path.write_text(_yaml(damaged_tree(yaml.safe_load(data), random)))
        else:
            path.write_bytes(damaged_bytes(data, random))
        outcome(lambda: experiment(str(path)), ConfigError, calls=3_000_000)


@pytest.mark.slow
def test_damaged_measurements_are_rows_or_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    lines = (ROOT / "gpusim/calibrate/data/host_measured.csv").read_text("utf-8").splitlines()[:20]
    head = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    cells: list[dict[str, Any]] = [dict(row) for row in csv.DictReader(lines[head:])]
    for i in range(200):
        random = Random(f"rows {i}")
        if random.random() < 0.5:
            path.write_text("\n".join(damaged_lines(lines, random)))
        elif random.random() < 0.8:
            path.write_text(text(damaged_tree({"conditions": {"quick": True}, "rows": cells}, random)))
        else:
            path.write_bytes(damaged_bytes("\n".join(lines).encode(), random))
        error = outcome(lambda: rows.read(path), GpusimError)
        assert error is None or (str(error).startswith(str(path)) and len(str(error)) < 500), i
