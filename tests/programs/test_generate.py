"""Generated programs: do they ask for what real ones ask for, is every free of a live unit, and are they the same twice?"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.base.tables import table
from gpusim.policies import registry as policies
from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.requests import R_ALLOC, R_FREE
from gpusim.programs import generate
from gpusim.programs.generate import gpt2, llama, registry, schedule, serving, training
from gpusim.programs.generate.programs import mixed_jobs
from gpusim.programs.generate.tape import AffineSize, RequestTape
from gpusim.programs.generate.transformer import Dimensions
from gpusim.programs.lengths import draw as lengths
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC, FREE, PHASE

ROOT = Path(__file__).parents[2]
GPT2 = Dimensions(12, 768, 12, 12, 3072, 50257, 1024, batch=8, element=2)
GPT2_EXACT = Dimensions(12, 768, 12, 12, 3072, 50257, 1024, batch=8, element=4)
LLAMA = Dimensions(16, 2048, 32, 8, 8192, 128256, 131072, batch=2, element=2)
TINY = "layers=1, width=2, heads=1, vocabulary=3"
SPECS = (
    "variable_training(hours=0.02, ends=1)",
    "variable_training(hours=0.01, ends=1, model=llama, layers=3, width=64, heads=4, kv_heads=2, checkpointing=1)",
    "growing_cache(hours=0.02, ends=1, layers=2, batch=3, requests_per_hour=9000, lengths=lognormal, prompt=9, output=40)",
    "growing_cache(hours=0.02, ends=1, layers=2, batch=3, requests_per_hour=9000, chunk=8)",
    "growing_cache(hours=0.05, ends=1, layers=2, batch=2, requests_per_hour=2000, cache=pages, graphs=1, longest=600)",
    "notebook(hours=10, ends=1)",
    "mixed_jobs(hours=0.3, lanes=3, job_hours=0.05, pause_hours=0.02)",
)


def step_of(trace_name: str, *phases: str) -> list[tuple[int, int, int]]:
    """(kind, bytes, how many requests ago it was allocated) of some phases of a trace; nothing is asked for 0 bytes."""
    trace = load_trace(ROOT / "traces" / f"{trace_name}.npz")
    found: list[tuple[int, int, int]] = []
    born: dict[int, int] = {}
    inside = False
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == PHASE:
            inside = trace.phases[arg] in phases
        elif inside and kind in (ALLOC, FREE) and trace.size[arg]:
            if kind == ALLOC:
                born[arg] = len(found)
            found.append((R_ALLOC if kind == ALLOC else R_FREE, int(trace.size[arg]), len(found) - born.get(arg, len(found))))
    return found


def requests_of(tape: RequestTape, number: int) -> list[tuple[int, int, int]]:
    """The same of a tape."""
    found: list[tuple[int, int, int]] = []
    born: dict[int, int] = {}
    for row in tape.rows():
        kind, unit, size = int(row["kind"]), int(row["unit"]), int(row["fixed"] + row["per"] * number)
        if kind == R_ALLOC:
            born[unit] = len(found)
        found.append((kind, size if kind == R_ALLOC else found[born[unit]][1], len(found) - born[unit]))
    return found


# --- what real programs ask for ---------------------------------------------------------------------------------------


def test_llama_step_is_the_recorded_one_request_by_request() -> None:
    tape = RequestTape()
    llama.step(tape, LLAMA, checkpoint=False)
    assert requests_of(tape, 2048) == step_of("llama-1b-train", "step1.fwd", "step1.bwd")


def test_gpt2_step_is_the_recorded_one_but_for_the_statistics_of_layer_norm() -> None:
    """The recorder ran on the host, where they are in the input's type; CUDA's layer norm has them in float32."""
    tape = RequestTape()
    gpt2.step(tape, GPT2, checkpoint=False)
    recorded = step_of("gpt2-small-train", "step1.fwd", "step1.bwd")
    made = requests_of(tape, 1024)
    host, device = 8 * 1024 * 2, 8 * 1024 * 4
    assert [(k, host if size == device else size, ago) for k, size, ago in made] == recorded
    assert sum(size == device for kind, size, _ in made if kind == R_ALLOC) == 2 * (2 * 12 + 1)


def test_gpt2_step_in_float32() -> None:
    tape = RequestTape()
    gpt2.step(tape, GPT2_EXACT, checkpoint=False)
    made, recorded = requests_of(tape, 1024), step_of("gpt2-small-train-fp32", "step1.fwd", "step1.bwd")
    differ = [(a, b) for a, b in zip(made, recorded, strict=True) if a != b]
    assert {size for pair in differ for _, size, _ in pair} <= {8}  # the order in which two of 8 bytes die
    assert Counter(made_[:2] for made_ in made) == Counter(recorded_[:2] for recorded_ in recorded)


def test_gpt2_step_with_checkpoints_asks_for_the_same() -> None:
    """Only the order of some frees within an operator differs."""
    tape = RequestTape()
    gpt2.step(tape, GPT2, checkpoint=True)
    host, device = 8 * 1024 * 2, 8 * 1024 * 4
    made = [(k, host if size == device else size) for k, size, _ in requests_of(tape, 1024)]
    recorded = [(k, size) for k, size, _ in step_of("gpt2-small-train-ckpt", "step1.fwd", "step1.bwd")]
    allocs = [[size for kind, size in rows if kind == R_ALLOC] for rows in (made, recorded)]
    assert allocs[0] == allocs[1]
    assert Counter(made) == Counter(recorded)


@pytest.mark.parametrize(
    ("trace_name", "settings", "inputs", "peak"),
    [
        ("gpt2-small-train", "typical=1024", 65536, 10_103_179_776),
        ("gpt2-small-train-fp32", "typical=1024, dtype_bytes=4", 65536, 15_103_662_080),
        ("gpt2-small-train-ckpt", "typical=1024, checkpointing=1", 65536, 5_869_804_032),
        ("llama-1b-train", "typical=2048, longest=2048, batch=2, model=llama, layers=16, width=2048, heads=32, kv_heads=8, "
         "hidden=8192, vocabulary=128256", 32768, 20_909_186_048),
    ],
)  # fmt: skip
def test_two_steps_have_the_recorded_peak(trace_name: str, settings: str, inputs: int, peak: int) -> None:
    """Peaks as in traces/README.md: blocks of 512 bytes, before any allocator."""
    rows = generate.get(f"variable_training(hours=1, steps_per_hour=2, lengths=fixed, {settings})").rows()
    assert peak_of(rows, 512) == pytest.approx(peak, rel=1e-4)
    recorded = load_trace(ROOT / "traces" / f"{trace_name}.npz")
    sizes = Counter(recorded.size[recorded.size > 4].tolist())  # without 0 and Adam's step counts, which the host keeps
    made = Counter(rows["size"][(rows["kind"] == R_ALLOC) & (rows["size"] > 4)].tolist())
    extra, missing = made - sizes, sizes - made
    assert extra.pop(inputs) == 2  # ids and labels are made for each step; the recording uses one batch twice
    assert set(extra) <= {2 * 16384} and set(missing) <= {16384} and extra.total() == missing.total()  # layer norm, see above


@pytest.mark.slow
def test_decoding_is_the_recorded_one() -> None:
    """A prompt of 1,024 tokens and 31 decoded, with caches that torch.cat makes anew each time.

    The recording's last phase, decode31, goes on with the end of the program.
    """
    shape = Dimensions(16, 2048, 32, 8, 8192, 128256, 8192, batch=1, element=2)
    tape = serving.tape(shape, page=0)
    rows = generate.get("growing_cache(hours=0.02, batch=1, lengths=fixed, prompt=1024, output=33, ends=1)").rows()
    weights = tape.start.end - tape.start.first
    at = weights
    requested = sized(rows)
    for phase in ["prefill", *(f"decode{i}" for i in range(31))]:
        recorded = [row[:2] for row in step_of("llama-1b-decode", phase)]
        length = len(recorded) + (3 if phase == "prefill" else 2)
        made = requested[at : at + length]
        # Ids of tokens come from the host and die with the step; the recording hands them on.
        ids = 8 * 1024 if phase == "prefill" else 8
        assert made[0] == (R_ALLOC, ids) and made[-1] == (R_FREE, 8)
        del made[0], made[-1]
        if phase == "prefill":
            assert made.pop(-2) == (R_FREE, ids)
        assert made == recorded, phase
        at += length


def sized(rows: np.ndarray) -> list[tuple[int, int]]:
    """(kind, bytes) of requests, of a free too."""
    size: dict[int, int] = {}
    found = []
    for kind, unit, bytes in zip(rows["kind"].tolist(), rows["unit"].tolist(), rows["size"].tolist(), strict=True):
        if kind == R_ALLOC:
            size[unit] = bytes
        found.append((kind, size[unit]))
    return found


def peak_of(rows: np.ndarray, block: int) -> int:
    size = np.array([bytes for _, bytes in sized(rows)])
    rounded = -(-size // block) * block
    return int(np.cumsum(np.where(rows["kind"] == R_ALLOC, rounded, -rounded)).max())


# --- every program ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
def test_every_free_is_of_a_live_unit_and_nothing_is_left(spec: str) -> None:
    program = generate.get(spec)
    rows = program.rows()
    assert len(rows) == program.total > 1000
    order = np.lexsort((np.arange(len(rows)), rows["unit"]))
    unit, kind, stream = (rows[name][order] for name in ("unit", "kind", "stream"))
    first = np.diff(unit, prepend=-1) != 0
    nth = np.arange(len(unit)) - np.maximum.accumulate(np.where(first, np.arange(len(unit)), 0))
    assert np.array_equal(kind, np.where(nth % 2 == 0, R_ALLOC, R_FREE))  # of each unit: alloc, free, alloc, free
    assert np.all(kind[np.append(first[1:], True)] == R_FREE)
    assert np.array_equal(stream[1:][kind[1:] == R_FREE], stream[:-1][kind[1:] == R_FREE])
    assert unit.min() >= 0 and unit.max() < program.units
    assert np.cumsum(np.where(rows["kind"] == R_ALLOC, 1, -1)).max() <= program.max_live
    assert rows["size"][rows["kind"] == R_ALLOC].min() > 0 and not rows["size"][rows["kind"] == R_FREE].any()


@pytest.mark.parametrize("spec", SPECS)
def test_made_again_it_is_the_same_whatever_the_pieces(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = generate.get(spec)
    once = [piece.tobytes() for piece in program.pieces()]
    monkeypatch.setattr(schedule, "PIECE", 777)
    pieces = list(program.pieces())
    assert b"".join(piece.tobytes() for piece in pieces) == b"".join(once)
    assert {len(piece) for piece in pieces[:-1]} == {777}
    assert generate.get(spec[:-1] + ", seed=5)").rows().tobytes() != b"".join(once)


@pytest.mark.slow
def test_interpreted_it_is_the_same() -> None:
    specs = ["variable_training(hours=0.001)", f"growing_cache(hours=0.01, batch=2, cache=pages, kv_heads=1, {TINY})",
             "notebook(hours=1)"]  # fmt: skip
    program = "import hashlib, sys; from gpusim.programs import generate\n" \
        "for s in sys.argv[1:]: print(hashlib.sha256(generate.get(s).rows().tobytes()).hexdigest())"  # fmt: skip
    here = [hashlib.sha256(generate.get(spec).rows().tobytes()).hexdigest() for spec in specs]
    plain = subprocess.run([sys.executable, "-c", program, *specs], env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, cwd=ROOT,
                           capture_output=True, text=True, check=True, timeout=300)  # fmt: skip
    assert plain.stdout.split() == here


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="ru_maxrss of a child counts its parent's memory")
def test_ten_million_requests_need_little_memory() -> None:
    program = "import re; from gpusim.programs import generate; r = generate.get('variable_training(hours=2.5)')\n" \
        "print(r.total, sum(len(p) for p in r.pieces()), re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    total, made, kib = map(int, done.stdout.split())
    assert made == total > 10_000_000
    assert kib < 300 * 1024 < 32 * total / 1024  # of which numpy and numba are half


def test_an_allocator_runs_it() -> None:
    program = generate.get("variable_training(hours=0.01)")
    made = replay(program, policies.get("place", "best_fit"))
    assert made.fits and made.counts["requests"] == program.total
    assert made.counts["requested_peak"] == peak_of(program.rows(), 1)
    kept = len(gpt2.parameters(GPT2))
    assert made.counts["live"] == 3 * kept  # parameters and two moments


# --- lengths ----------------------------------------------------------------------------------------------------------


def drawn(name: str, part: str = "both", typical: int = 400, spread: float = 0.5, longest: int = 200_000) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(1))
    return lengths.draw(rng, 200_000, name, typical=typical, spread=spread, longest=longest, part=part)


def test_parametric_lengths() -> None:
    assert set(drawn("fixed")) == {400}
    uniform = drawn("uniform", longest=50)
    assert (uniform.min(), uniform.max()) == (1, 50) and uniform.mean() == pytest.approx(25.5, rel=0.01)
    lognormal = drawn("lognormal")
    assert np.median(lognormal) == pytest.approx(400, rel=0.01)
    assert lognormal.mean() == pytest.approx(400 * np.exp(0.5**2 / 2), rel=0.01)
    assert np.percentile(lognormal, 97.725) == pytest.approx(400 * np.exp(2 * 0.5), rel=0.02)  # two deviations
    zipf = drawn("zipf", spread=1.0, longest=1000)
    harmonic = (1 / np.arange(1, 1001)).sum()
    assert (zipf == 1).mean() == pytest.approx(1 / harmonic, rel=0.02)
    assert (zipf == 2).mean() == pytest.approx(0.5 / harmonic, rel=0.03)
    assert zipf.mean() == pytest.approx(1000 / harmonic, rel=0.02)
    assert drawn("lognormal", longest=300).max() == 300 and drawn("lognormal", typical=1, spread=3.0).min() == 1


@pytest.mark.parametrize(
    ("name", "part", "mean", "median", "largest"),
    [  # of the published files themselves
        ("azure-conv", "prompt", 1154.70, 1020, 14050), ("azure-conv", "output", 211.13, 129, 1000),
        ("azure-code", "prompt", 2047.85, 1469, 7437), ("azure-code", "output", 27.88, 13, 1899),
        ("mooncake", "prompt", 12035.06, 6909, 126195), ("mooncake", "output", 342.62, 350, 2000),
    ],
)  # fmt: skip
def test_recorded_lengths(name: str, part: str, mean: float, median: int, largest: int) -> None:
    found = drawn(name, part)
    assert found.mean() == pytest.approx(mean, rel=0.05)
    assert np.median(found) == pytest.approx(median, rel=0.02)
    assert largest * 0.7 < found.max() <= largest


def test_batches_are_as_long_as_their_longest_sequence() -> None:
    made = registry.schedule("variable_training(hours=20, lengths=uniform, batch=3, pad_to=16, longest=1000)")
    number = np.concatenate([plays["number"] for plays in made.plays()])[1:]
    assert len(number) == 20 * 2160
    assert np.all((number % 16 == 0) | (number == 1000)) and number.max() == 1000
    assert number.mean() == pytest.approx(1000 * 3 / 4 + 8, rel=0.01)  # largest of three, padded by half of 16


# --- small cases by hand ----------------------------------------------------------------------------------------------


@pytest.mark.hand_worked
def test_training_by_hand() -> None:
    """GPT-2 of one layer, width 2, MLP 8, 3 words, 4 positions; batches of one sequence of 4 tokens, 2 bytes an element."""
    spec = f"variable_training(hours=1, steps_per_hour=1, lengths=fixed, typical=4, longest=4, pad_to=1, batch=1, {TINY})"
    rows = sized(generate.get(spec).rows())
    new, free = R_ALLOC, R_FREE
    words, places, norm = 3 * 2 * 2, 4 * 2 * 2, 2 * 2
    weights = [words, places, norm, norm, 24, 12, 8, 4, norm, norm, 32, 16, 32, 4, norm, norm]
    assert rows[:16] == [(new, size) for size in weights]
    act, mask, stat, wide = 16, 8, 16, 64
    assert rows[16:30] == [
        (new, 32), (new, 32),                                # ids, labels
        (new, act), (new, 32), (new, 32), (free, 32),        # words; positions counted, shifted
        (new, 16), (new, act), (new, act), (new, mask), (free, act),  # positions' vectors, sum, dropout
        (new, act), (new, stat), (new, stat),                # layer norm
    ]  # fmt: skip
    assert rows[30:36] == [(new, 48), (new, act), (new, 16), (new, 16), (new, 8), (new, act)]  # qkv, attention, projection
    assert rows.count((new, wide)) == 1 + 8 + 1 + 11  # up, GELU; gradient of its output, its backward pass
    # Adam: two moments and one temporary for each parameter, temporaries die in reverse; then gradients and inputs.
    moments = [(new, size) for size in weights for _ in range(2)]
    assert rows[-82:] == [
        *moments, *((new, size) for size in weights), *((free, size) for size in reversed(weights)),
        *((free, size) for size in weights), (free, 32), (free, 32),
    ]  # fmt: skip


def caches_of(spec: str) -> list[tuple[int, int, int]]:
    """(kind, unit, bytes) of the caches of the first sequence, from 0 on; what is temporary left out."""
    made = registry.schedule(spec)
    shape = Dimensions(1, 2, 1, 1, 8, 3, 8, 1, 2)
    base = serving.tape(shape, 2 if "pages" in spec else 0).units
    rows = made.requests().rows()
    mine = rows[rows["unit"] >= base]
    return [(int(r["kind"]), int(r["unit"]) - base, int(r["size"])) for r in mine]


CACHE = f"batch=1, lengths=fixed, prompt=2, output=4, longest=8, hidden=8, kv_heads=1, requests_per_hour=200, {TINY}"


@pytest.mark.hand_worked
def test_caches_by_hand() -> None:
    """A token has 2 elements of 2 bytes in each cache.  Prompt of 2 tokens, then 3 decoding steps."""
    new, free = R_ALLOC, R_FREE
    found = caches_of(f"growing_cache(hours=0.1, {CACHE})")
    one = [
        (new, 0, 8), (new, 1, 8),
        (new, 2, 12), (free, 0, 0), (new, 0, 12), (free, 1, 0),  # keys 0 -> 2, values 1 -> 0
        (new, 1, 16), (free, 2, 0), (new, 2, 16), (free, 0, 0),  # keys 2 -> 1, values 0 -> 2
        (new, 0, 20), (free, 1, 0), (new, 1, 20), (free, 2, 0),  # as at first
        (free, 0, 0), (free, 1, 0),
    ]  # fmt: skip
    assert len(found) >= 2 * len(one) and found == one * (len(found) // len(one))
    found = caches_of(f"growing_cache(hours=0.1, chunk=3, {CACHE})")
    one = [(new, 0, 12), (new, 1, 12), (new, 2, 24), (free, 0, 0), (new, 0, 24), (free, 1, 0), (free, 2, 0), (free, 0, 0)]
    assert found == one * (len(found) // len(one))
    found = caches_of(f"growing_cache(hours=0.1, cache=pages, chunk=2, graphs=1, {CACHE})")
    one = [(new, 0, 16), (new, 1, 16), (new, 2, 16), (free, 0, 0), (free, 1, 0), (free, 2, 0)]  # 2, 3 and 4, 5 tokens
    assert found == one * (len(found) // len(one))


@pytest.mark.hand_worked
def test_notebook_by_hand() -> None:
    """One name, cells without a chain: two temporaries, the result, and the old result dies after the new one is there."""
    rows = generate.get("notebook(hours=3, cells_per_hour=1, operators=2, variables=1, largest=512 B, ends=1)").rows()
    new, free = R_ALLOC, R_FREE
    start, end = [(new, 0), (new, 1), (free, 0)], [(free, 1)]
    cells = [[(new, 2)], [(new, 3), (free, 2)], [(new, 2), (free, 3)]]
    expected = [row for cell in cells for row in [*start, *cell, *end]] + [(free, 2)]
    assert list(zip(rows["kind"].tolist(), rows["unit"].tolist(), strict=True)) == expected
    assert set(rows["size"][rows["kind"] == new]) == {512}


@pytest.mark.hand_worked
@pytest.mark.slow
def test_jobs_take_turns_by_hand() -> None:
    """Six requests at 0 ms and two at 100: turns of at most 2 begin at 0, 33 and 66 ms; another lane comes between."""
    plays = table(3, schedule.PLAY)
    plays["time"], plays["first"], plays["end"] = [0, 0, 100], [10, 20, 30], [13, 23, 32]
    cut = mixed_jobs.turns(plays, 2)
    assert list(zip(cut["time"], cut["first"], cut["end"], strict=True)) == [
        (0, 10, 12), (33, 12, 13), (50, 20, 22), (83, 22, 23), (100, 30, 32),
    ]  # fmt: skip
    other = table(2, schedule.PLAY)
    other["time"], other["stream"] = [33, 90], 1
    merged = np.concatenate(list(mixed_jobs.merge([iter([cut[:2], cut[2:]]), iter([other])])))
    assert list(zip(merged["time"], merged["stream"], strict=True)) == [
        (0, 0), (33, 0), (33, 1), (50, 0), (83, 0), (90, 1), (100, 0),
    ]  # fmt: skip


def test_jobs_run_side_by_side() -> None:
    made = registry.schedule("mixed_jobs(hours=0.5, lanes=3, job_hours=0.1, pause_hours=0.02)")
    time = np.concatenate([plays["time"] for plays in made.plays()])
    assert np.all(np.diff(time) >= 0) and time[-1] <= 0.5 * 3_600_000
    rows = made.requests().rows()
    switches = np.count_nonzero(np.diff(rows["stream"]))
    assert set(rows["stream"]) == {0, 1, 2} and switches > len(rows) / 1000
    per_lane = made.units // 3
    assert np.array_equal(rows["unit"] // per_lane, rows["stream"])  # lanes share nothing


def test_a_shared_tensor_dies_with_its_last_owner() -> None:
    tape = RequestTape()
    one = tape.new(AffineSize(8))
    tape.share(one)
    tape.free(one)
    assert tape.new(AffineSize(4, 2)) == 1
    tape.free(one)
    assert tape.new(AffineSize(2)) == 0  # the number is used again
    assert tape.rows().tolist() == [(R_ALLOC, 0, 8, 0), (R_ALLOC, 1, 4, 2), (R_FREE, 0, 0, 0), (R_ALLOC, 0, 2, 0)]


# --- names and parameters ---------------------------------------------------------------------------------------------


def test_entries_explain_their_parameters() -> None:
    found = {entry.name: entry for entry in generate.entries()}
    assert list(found) == ["growing_cache", "mixed_jobs", "notebook", "variable_training"]
    for entry in found.values():
        head = [name for line in re.findall(r"^([a-z_]+(?:, [a-z_]+)*)(?:  |$)", entry.help, re.M) for name in line.split(", ")]
        assert set(entry.parameters) == set(head), entry.name
        assert entry.summary.endswith(".")
    assert found["variable_training"].parameters["hours"] == 24.0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("variable_trainig", "there is no generator 'variable_trainig' (did you mean 'variable_training'?)"),
        ("variable_training(hour=2)", "no parameter 'hour' (did you mean 'hours'?)"),
        ("variable_training(hours=long)", "parameter 'hours' of generator 'variable_training' is 'long', not a number above 0"),
        ("variable_training(hours=nan)", "is 'nan', not a number above 0"),
        ("variable_training(batch=0)", "is '0', not a whole number above 0"),
        ("variable_training(batch=2.5)", "is '2.5', not a whole number above 0"),
        ("variable_training(seed=-1)", "is '-1', not a whole number"),
        ("variable_training(checkpointing=often)", "is 'often', not yes or no"),
        ("variable_training(lengths=lognormel)", "there are no lengths 'lognormel' (did you mean 'lognormal'?)"),
        ("variable_training(model=gpt3)", "there is no model 'gpt3' (did you mean 'gpt2'?)"),
        ("variable_training(heads=7)", "7 heads and 7 KV heads do not go together"),
        ("variable_training(dtype_bytes=3)", "parameters of 3 bytes are not modelled (dtype_bytes is 2 or 4)"),
        ("growing_cache(cache=page)", "there is no cache 'page' (did you mean 'pages'?)"),
        ("growing_cache(longest=1)", "longest is 2 or more"),
        ("notebook(largest=64)", "'64' has no unit"),
        ("training steps", "'training steps' is not a generator"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_sentence(spec: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        generate.get(spec)
    assert said in str(error.value)


def test_all_models_have_a_gradient_for_each_parameter() -> None:
    for name, module in training.MODELS.items():
        tape, shape = RequestTape(), Dimensions(2, 8, 2, 1 if name == "llama" else 2, 16, 11, 32, 1, 4)
        sizes = {}
        gradients = module.step(tape, shape, False)
        for row in tape.rows():
            if row["kind"] == R_ALLOC:
                sizes[int(row["unit"])] = AffineSize(int(row["fixed"]), int(row["per"]))
        assert [sizes[unit] for unit in gradients] == module.parameters(shape)
