"""Are `gpusim fragment`, `export` and `offsets` clear about what they cannot do, and sensible about what they can?"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.policies.place.parts.pytorch import rules
from gpusim.programs import generate
from gpusim.results.heap_over_time import closed
from gpusim.results.log import LOG, PLACE, RELEASE, RESERVE, UNPLACE
from gpusim.show.allocator_study import FIGURES, _few_sites
from gpusim.show.heap_states import STATES, states
from gpusim.studies.fragmentation.candidates import named
from gpusim.studies.fragmentation.heap import History
from gpusim.studies.fragmentation.lasting import lasting
from gpusim.studies.fragmentation.study import study
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

HEAD = "event,tensor,size,name,reads,writes,flops,duration_ns\n"


def said(*words: object, code: int = 0) -> str:
    """What a verb prints; of one that ends with code 2, the sentence on stderr."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}\n{done.exception!r}"
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small() -> str:
    """A recording: 30 MiB, then 20 MiB that stay, then 30 MiB again where another tensor lies in the way."""
    Path("small.csv").write_text(
        HEAD + f"alloc,a,{30 << 20},,,,,\nalloc,b,{20 << 20},,,,,\nfree,a,,,,,,\nalloc,c,{60 << 20},,,,,\n"
    )
    return "small.csv"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--capacity", "24"), "'24' has no unit"),
        (("--capacity", "0 B"), "a capacity of '0 B' holds nothing (leave it out for no limit)"),
        (("--capacity", "1 GiB", "--on", "l4"), "--capacity and --on both say what an allocator may hold"),
        (("--on", "l44"), "there is no profile 'l44' (did you mean 'l4'"),
        (("--try", "bestfit"), "did you mean 'best_fit'?"),
        (("--try", "max_splt_size_mb:64"), "did you mean 'max_split_size_mb'?"),
        (("--try", "max_split_size_mb:10"), "20 or more"),
        (("--try", ""), "'' is not a policy"),
        (("--try", "rmm_pool(initial=2GiB)"), "is '2GiB', not a number (in bytes: 2147483648)"),
        (("--try", "rmm_pool(initial=1e30)"), "parameter 'initial' of policy 'rmm_pool' is 1e+30, above 2^62"),
        (("--try", "rmm_pool(initial=2048,maximum=1024)"), "an initial size of 2048 bytes, above its maximum of 1024"),
        (("--try", "cuda_async(threshold=-5)"), "parameter 'threshold' of policy 'cuda_async' is negative (-5)"),
        (("--try", "cuda_async(page=0)"), "parameter 'page' of policy 'cuda_async' is 0 bytes (at least 1)"),
        (("--try", "tlsf(min_rest=-4)"), "is negative (-4)"),
        (("--format", "gif"), "figures do not come as 'gif'"),
    ],
)
def test_what_cannot_be_tried_is_said_and_nothing_is_written(words: tuple[str, ...], sentence: str, small: str) -> None:
    assert sentence in said("fragment", small, *words, code=2)
    assert os.listdir() == [small]


@pytest.mark.parametrize("rows", ["", "op,,,mm,,,,\n"])
@pytest.mark.parametrize("verb", ["fragment", "export", "offsets"])
def test_a_recording_that_allocates_nothing(verb: str, rows: str) -> None:
    Path("empty.csv").write_text(HEAD + rows)
    assert "the trace allocates nothing" in said(verb, "empty.csv", code=2)
    assert os.listdir() == ["empty.csv"]


def test_an_option_that_would_be_ignored_is_refused(small: str) -> None:
    assert "--device chooses one GPU" in said("fragment", "gpt-medium-infer", "--device", 1, code=2)
    assert "--device chooses one GPU" in said("fragment", "variable_training(hours=0.01)", "--device", 1, code=2)
    assert "--run chooses a run of a results folder" in said("export", small, "--run", "x", code=2)
    assert "this is a folder" in said("fragment", ".", code=2)
    assert "holds nothing" in said("offsets", small, "--capacity", "0B", code=2)


def test_numbers_that_do_not_fit(small: str) -> None:
    said("offsets", small, "--align", 10**21, code=2)
    assert "'hours'" in (text := said("fragment", "variable_training(hours=1e30)", code=2)) and "above 100,000,000" in text


def test_a_generated_program_says_what_it_is_and_leaves_its_numbers() -> None:
    words = ("fragment", "variable_training(hours=0.01)", "--try", "best_fit", "-o", "found")
    values = json.loads(said(*words, "--json"))
    assert values == json.loads(Path("found/study.json").read_text())
    assert values["name"] == "variable_training(hours=0.01)" and values["capacity"] == 80 << 30
    row = values["candidates"][0]
    assert row["allocator"] == "best_fit" and row["held_peak"] >= values["requested_peak"] > 2**30



def test_what_is_no_file_is_written_into_and_stays(small: str) -> None:
    """A rename over /dev/null or a pipe would put a file in its place."""
    os.mkfifo("pipe")
    end = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    said("offsets", small, "-o", "pipe")
    assert Path("pipe").is_fifo() and os.read(end, 100).startswith(b"id,lower,upper,size,offset\n")
    os.close(end)
    Path("file.csv").write_text("old")
    Path("link.csv").symlink_to("file.csv")
    said("offsets", small, "-o", "link.csv")
    assert Path("link.csv").is_symlink() and Path("file.csv").read_text().startswith("id,")


@pytest.mark.slow
def test_what_is_tried_stands_beside_what_the_program_runs_with(small: str) -> None:
    """PyTorch's 30 MiB segment is too small for 60: it holds 30 + 20 + 60.  One range needs 30 less."""
    values = json.loads(said("oom", small, "--try", "best_fit", "--no-figures", "--json"))
    assert values["now"]["allocator"] == "default settings" and values["now"]["held_peak"] == 110 << 20
    assert values["requested_peak"] == 80 << 20
    tried = {(c["label"], c["held_peak"] >> 20) for c in values["candidates"]}
    assert tried == {("best_fit", 110), ("default settings", 110)}
    assert values == json.loads(next(Path("results").glob("oom-*/study.json")).read_text())
    words = (small, "--try", "best_fit", "--no-figures")
    assert said("fragment", *words) == said("oom", *words)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["{}:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF={}:cudaMallocAsync", "pytorch(conf={}:cudaMallocAsync)"]
)
def test_the_line_that_is_advised_can_be_tried(words: str, small: str) -> None:
    values = json.loads(said("fragment", small, "--try", words.format("backend"), "--no-figures", "--json"))
    assert {c["allocator"]: c["how"] for c in values["candidates"]} == {
        "default settings": "the default", "backend:cudaMallocAsync": "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
    }  # fmt: skip


@pytest.mark.slow
def test_what_refuses_requests_saves_nothing(small: str) -> None:
    """Nothing fits into 70 MiB where 80 are in use at once: no advice, and no percentage of what was not served."""
    text = said("oom", small, "--try", "best_fit", "--try", "buddy", "--capacity", "70 MiB", "--no-figures")
    text = " ".join(text.split())
    assert text.startswith("It would run out of memory on a request of 60 MiB: shortage. 20 MiB live + 60 MiB requested")
    assert "exceed the 70 MiB that PyTorch could hold by 10 MiB; no allocator could serve it." in text
    assert "Leave the settings as they are: under each the request fails" in text and "export" not in text


@pytest.mark.slow
def test_a_recording_that_held_more_than_the_capacity_is_not_what_is_compared_with() -> None:
    words = ("--capacity", "1 GiB", "--try", "best_fit", "--no-figures", "--json")
    values = json.loads(said("oom", "gpt-medium-train-snapshot", *words))
    assert values["now"]["allocator"] != "as recorded" and values["now"]["refused"]
    assert values["advice"] == [] and values["verdict"].startswith("It would run out of memory")


@pytest.mark.slow
def test_a_pool_is_not_blamed_for_the_size_that_it_takes_at_once() -> None:
    log = Path(__file__).parents[1] / "data" / "rmm" / "pool_4streams_steal_merge.csv"
    values = json.loads(said("fragment", log, "--no-figures", "--json"))
    assert values["now"]["allocator"] == "rmm_pool(initial=0)"
    assert values["now"]["held_peak"] < 3 * values["requested_peak"]
    assert not [remedy for remedy in values["advice"] if remedy["kind"] == "setting"]  # the log names no resource


@pytest.mark.slow
def test_a_folder_with_the_name_of_a_trace_does_not_hide_it() -> None:
    Path("gpt-medium-infer").mkdir()
    said("fragment", "gpt-medium-infer", "--try", "best_fit", "--no-figures")


@pytest.mark.slow
def test_one_gpu_of_a_snapshot_is_chosen(tmp_path: Path) -> None:
    def allocation(size: int) -> list[dict[str, object]]:
        return [{"action": "alloc", "addr": 0, "size": size, "stream": 0, "time_us": 0, "frames": []}]

    file = tmp_path / "two.pickle"
    file.write_bytes(pickle.dumps({"segments": [], "device_traces": [allocation(512), allocation(1024)]}))
    assert "--device 0" in said("offsets", file, code=2)
    assert json.loads(said("offsets", file, "--device", 1, "--json"))["plan"] == 1024
    assert "--device chooses one GPU" in said("offsets", "gpt-medium-infer", "--device", 1, code=2)


def test_a_long_program_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    program = generate.get("variable_training(hours=0.01)")
    lasting(program, named(["best_fit", "buddy"]), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2 * program.total, 2 * program.total)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


@pytest.mark.slow
def test_workers_do_not_import_the_program_twice(tmp_path: Path) -> None:
    """Python warns when the main module of a worker is there before it is run."""
    (tmp_path / "small.csv").write_text(HEAD + "alloc,a,512,,,,,\n")
    command = [sys.executable, "-m", "gpusim", "fragment", "small.csv", "--try", "best_fit", "--format", "png", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr


@pytest.mark.slow
def test_a_setting_given_twice_is_warned_of(tmp_path: Path) -> None:
    """PyTorch takes the last; a list of divisions leaves what it does not name."""
    (tmp_path / "small.csv").write_text(HEAD + "alloc,a,512,,,,,\n")
    twice = "max_split_size_mb:64,max_split_size_mb:128"
    command = ["fragment", str(tmp_path / "small.csv"), "--try", twice, "--no-figures", "-o", str(tmp_path / "out")]
    assert "max_split_size_mb is given more than once; as in PyTorch the last value" in CliRunner().invoke(app, command).stderr
    assert rules.repeated("max_split_size_mb:64,expandable_segments:True,max_split_size_mb:64") == []
    (said,) = rules.repeated("roundup_power2_divisions:8,roundup_power2_divisions:[2:4]")
    assert said.endswith("the last that names a size holds for it")
    assert rules.commands(twice)[-1] == rules.commands("max_split_size_mb:128")[-1]
    divided = rules.commands("roundup_power2_divisions:8,roundup_power2_divisions:[2:4]")
    last = {code_entry[1]: code_entry[2] for code_entry in divided if code_entry[0] == rules.SET_DIVISIONS}
    assert last == {0: 4, 1: 4} | dict.fromkeys(range(2, 16), 8)


# --- figures


def planned(steps: int = 3) -> Trace:
    """Two places of a program with names of 60 characters, and one with a short one."""
    build = TraceBuilder("planned")
    for name in ("a" * 60, "b" * 60, "short"):
        for _ in range(steps):
            build.alloc(20 << 20, name)
    return build.finish()


def test_every_candidate_of_the_table_has_a_panel_with_its_peak() -> None:
    names = ("pytorch", *(f"max_split_size_mb:{64 * k}" for k in range(1, 12)), "rmm_arena")
    found = study(planned(), named(names))
    figure = FIGURES["held_over_time"](found)
    titles = [panel.get_title(loc="left") for panel in figure.axes if panel.axison]
    assert titles[0] == "default settings (now)" and len(titles) == len(found.tried) == 13
    assert set(titles[1:]) == {t.high.name for t in found.tried if t.high.name != found.now.name}
    peaks = {text.get_gid(): text.get_text() for panel in figure.axes for text in panel.texts}
    assert peaks["peak:default settings"] == "180 MiB" and peaks["peak:rmm_arena"].startswith("40 GiB ↑, ")
    assert figure.axes[0].get_ylim()[1] < 300  # MiB: what is far off leaves its panel


def test_curves_show_reserved_allocated_and_requested() -> None:
    """Three tensors of 20 MiB and 100 bytes: best_fit rounds to 512, buddy to 32 MiB."""
    build = TraceBuilder("three")
    for _ in range(3):
        build.alloc((20 << 20) + 100, "fwd")
    found = study(build.finish(), named(["best_fit", "buddy"]))
    axes = FIGURES["held_over_time"](found).axes
    lines = {str(line.get_gid()): np.asarray(line.get_ydata()) for panel in axes for line in panel.lines}
    assert lines["buddy"].max() >= lines["allocated:buddy"].max() == 96  # MiB
    for name in ("default settings", "best_fit"):
        assert 60 < lines[f"allocated:{name}"].max() < 60.01
    assert lines["now"].max() == lines["default settings"].max()


def test_states_of_the_heap_at_one_moment_are_told_apart() -> None:
    """Segment 0: a block of 1000 of 1024 bytes, a hole, a block that awaits another stream; segment 8192: nothing."""
    log = np.zeros(4, LOG)
    log["kind"], log["addr"] = [RESERVE, RESERVE, PLACE, PLACE], [0, 8192, 0, 3072]
    log["bytes"], log["a"] = [4096, 2048, 1024, 1024], [0, 0, 0, 1]
    found = states(History(log, 9).at(5), np.array([1000, 1024]), np.array([9, 3]), 5)
    assert {name: [(int(a), int(b)) for a, b in zip(*ranges, strict=True) if b > a]
            for name, ranges in zip(STATES, found, strict=True)} == {
        "in use": [(0, 1000)], "rounding": [(1000, 1024)], "awaiting free": [(3072, 4096)],
        "free beside blocks in use": [(1024, 3072)], "free, whole segment": [(8192, 10240)],
    }  # fmt: skip


def test_the_map_of_states_says_what_is_free_where_all_can_see_it() -> None:
    """Tensors of 20 to 30 MiB, each until the next is there, leave 20 + 22 + 24 + 26 that no later one fits into."""
    build, last = TraceBuilder("growing"), None
    for i in range(6):
        grown = build.alloc((20 + 2 * i) << 20, "grow")
        if last is not None:
            build.free(last)
        last = grown
    figure = FIGURES["heap_states"](study(build.finish(), named(["pytorch"])))
    assert "92 MiB in whole segments (grey) are free" in " ".join(text.get_text() for text in figure.texts)


def test_addresses_that_are_never_held_are_left_out_of_the_map() -> None:
    """Segments at 1 TiB and 3 TiB stand one on the other; blocks stay where they are inside them."""
    log = np.zeros(6, LOG)
    log["kind"] = [RESERVE, PLACE, RESERVE, PLACE, UNPLACE, RELEASE]
    log["addr"] = [3 << 40, (3 << 40) + 512, 1 << 40, 1 << 40, 1 << 40, 1 << 40]
    log["bytes"] = [4096, 512, 2048, 1024, 1024, 2048]
    assert closed(log)["addr"].tolist() == [2048, 2560, 0, 0, 0, 0]
    assert closed(log[:0]).tolist() == []


def test_the_map_names_as_many_places_as_its_legend_has_room_for() -> None:
    sites = _few_sites(study(planned(), named(["best_fit"])))
    assert sites == ["others"] * 9  # not even one of 60 characters
    short = TraceBuilder("short")
    for name in ("fwd", "bwd"):
        short.alloc(512, name)
    assert _few_sites(study(short.finish(), named(["best_fit"]))) == ["fwd", "bwd"]
