"""Timed replay with swapping, prefetch and links against the same model in plain SimPy: equal results, and how much faster.

    pip install "gpusim[bench]" && python benchmarks/timed.py

1  Against SimPy (`simpy_rival.py`, `simpy_ahead.py`): makespan, traffic, swaps and prefetches must be equal, at four memory
   sizes, on training steps and on a random program of two streams.  Kernels per second of the island alone
   (`Simulation.advance`), and of all of `simulate()` with the building of tables, on a longer program as well.
2  A SimPy process that looks at the memory about every ten kernels.
3  Eviction policies in plain Python, as columns and as a class: victims per second of the whole run.
4  Traces of 1, 3 and 10 million events, each in a process of its own: seconds and peak memory.

Speeds are of CPU time, the median of `--repeat`; exit code 1 when results differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from simpy_ahead import RivalAhead
from simpy_rival import Rival

from gpusim import policy
from gpusim.engine import state
from gpusim.engine.run import outcome
from gpusim.engine.run.plans import view as view_of
from gpusim.engine.run.simulate import Simulation, simulate
from gpusim.engine.run.tables import Shared
from gpusim.machine import catalogue
from gpusim.machine.constants import machine as machine_of
from gpusim.machine.kernels.needs import kernel_needs
from gpusim.machine.sharing import WORDS
from gpusim.policies import registry
from gpusim.policies.plan.parts.swap.estimate import estimate
from gpusim.policies.planning import NOTHING, View
from gpusim.programs.generate import synth
from gpusim.trace import workload
from gpusim.trace.build import make_trace
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import NAME_TABLES, Trace, columns

BLOCK = 8 << 20  # bytes of every tensor
LAYERS = 48
SHARES = (1.01, 0.95, 0.80, 0.60)
SAME = ("makespan_ns", "h2d_bytes", "d2h_bytes", "swap_ins", "swap_outs", "clean_drops", "prefetches")
MACHINE = "a100-pcie-40gb"


@policy.evict(columns=True)
def column_lru(last_use):
    """LRU as a function of whole columns."""
    return last_use


@policy.evict
class ClassLru:
    """LRU as a class; names as many victims at once as `batch` says."""

    def __init__(self, batch=1):
        self.batch, self.order = batch, OrderedDict()

    def insert(self, unit, size):
        self.order[unit] = None

    def touch(self, unit, size):
        self.order.move_to_end(unit)

    def remove(self, unit, size):
        self.order.pop(unit, None)

    def victim(self, need, locked):
        free = (u for u in self.order if not locked[u])
        return [u for u, _ in zip(free, range(self.batch), strict=False)]


ASKED = {"lru": "lru", "column_lru": column_lru, "ClassLru": ClassLru, "ClassLru(batch=16)": partial(ClassLru, batch=16)}


# --- programs -------------------------------------------------------------------------------------------------------------


def training(kernels: int) -> Trace:
    """Steps of a network whose parameters and activations are all of one block."""
    width = int((BLOCK / 8) ** 0.5)
    return synth.training(max(1, kernels // (3 * LAYERS)), layers=LAYERS, width=width, tokens=4 * width)


def two_streams(kernels: int) -> Trace:
    """A random program with every tensor of one block."""
    made = synth.random_program(7, kernels, streams=2, mean_life=120.0, uses=3.0, parameters=8, kept=0.0)
    given = {name: column for name, column in columns(made) if name != "bytes"}
    given["size"] = np.full(made.tensors, BLOCK)
    return make_trace("two streams", given, {name: getattr(made, name) for name in NAME_TABLES})


def bound(trace: Trace, seed: int = 1) -> workload.Workload:
    """With kernels of 20 to 400 us; a block takes 329 us to the device."""
    return workload.build(trace, np.random.Generator(np.random.PCG64(seed)).integers(20_000, 400_000, trace.ops))


def memory(work: workload.Workload, share: float) -> int:
    return int(work.live_peak // BLOCK * share) * BLOCK


# --- both sides -----------------------------------------------------------------------------------------------------------


def simulation(work: workload.Workload, capacity: int, prefetch: str, evict: Any = "lru") -> Simulation:
    """What `simulate` makes of the same arguments."""
    profile = catalogue.load(MACHINE)
    machine = machine_of(work.trace, profile, capacity)
    shared = Shared(WORDS, needs=kernel_needs(work.trace, work.duration, profile))
    named = {"place": "first_fit", "evict": evict, "prefetch": prefetch, "defrag": "none"}
    chosen = {kind: registry.get(kind, name) for kind, name in named.items()}
    return Simulation(work, machine, **chosen, seed=0, record=False, shared=shared)


def rival(work: workload.Workload, sim: Simulation, ahead: int) -> Rival:
    trace, start = work.trace, work.acc_start.tolist()
    pairs = list(zip(work.acc_unit.tolist(), work.acc_write.astype(bool).tolist(), strict=True))
    events = [e for e in zip(trace.kind.tolist(), trace.arg.tolist(), trace.stream.tolist(), strict=True) if e[0] <= 2]
    return (RivalAhead if ahead else Rival)(
        events, [pairs[a:b] for a, b in itertools.pairwise(start)], work.duration.tolist(),
        work.has_data.astype(bool).tolist(), int(trace.stream.max()) + 1, BLOCK, sim.machine.capacity, sim.machine,
        int(sim.island.queues[-1]["limit"]), ahead,
    )  # fmt: skip


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds, answer)"""
    start = time.process_time()
    answer = function()
    return time.process_time() - start, answer


def island(work: workload.Workload, capacity: int, prefetch: str, repeat: int) -> tuple[float, Simulation]:
    """(median CPU seconds of the island alone, the last simulation)"""
    seconds = []
    for _ in range(repeat):
        sim = simulation(work, capacity, prefetch)
        taken, reason = timed(partial(sim.advance, state.NEVER))
        assert reason == state.FINISHED, reason
        seconds.append(taken)
    return statistics.median(seconds), sim


def whole(work: workload.Workload, capacity: int, prefetch: str, **more: Any) -> tuple[float, Any]:
    """(CPU seconds of simulate() from a workload to a result, the result)"""
    return timed(partial(simulate, work.trace, catalogue.load(MACHINE), place="first_fit", prefetch=prefetch,
                         capacity_bytes=capacity, work=work, **more))  # fmt: skip


def against_simpy(small: int, large: int, repeat: int) -> int:
    """The comparison; returns how many results differ."""
    wrong = 0
    long = bound(training(large))
    rate = "thousand kernels per second"
    print(f"against plain SimPy, {rate}; island: the loop alone, whole: simulate() from a workload to a result")
    print(f"{'program':12} {'prefetch':12} {'memory':>6} {'swaps':>8} {'SimPy':>7} {'island':>8} {'ratio':>7}"
          f" {f'{large:,} kernels: island':>26} {'whole':>8}")  # fmt: skip
    for name, make in (("training", training), ("two streams", two_streams)):
        work = bound(make(small))
        for prefetch, ahead in (("none", 0), ("next_k(k=4)", 4)):
            for share in SHARES:
                capacity = memory(work, share)
                fast, sim = island(work, capacity, prefetch, repeat)
                mine = outcome.metrics(sim)
                slow, theirs = timed(rival(work, sim, ahead).run)
                differ = [f"{k} {mine[k]} and {theirs[k]}" for k in SAME if mine[k] != theirs[k]]
                wrong += bool(differ)
                ops = work.trace.ops
                line = (f"{name:12} {prefetch:12} {share:6.0%} {mine['swap_ins'] + mine['swap_outs']:8} "
                        f"{ops / slow / 1e3:7.1f} {ops / fast / 1e3:8.0f} {slow / fast:6.0f}x")  # fmt: skip
                if name == "training":
                    alone, _ = island(long, memory(long, share), prefetch, repeat)
                    all_of_it, _ = whole(long, memory(long, share), prefetch)
                    line += f" {long.trace.ops / alone / 1e3:26.0f} {long.trace.ops / all_of_it / 1e3:8.0f}"
                print(line + ("  DIFFER: " + "; ".join(differ) if differ else ""), flush=True)
    print(f"results that differ: {wrong or 'none'}\n")
    return wrong


# --- what Python adds -----------------------------------------------------------------------------------------------------


def monitored(work: workload.Workload, share: float, every: int) -> tuple[float, int]:
    """(CPU seconds, how often the process looked), once in `every` ns."""
    ticks: list[int] = []

    def monitor(env: Any, s: Simulation) -> Generator[Any, Any, None]:
        while True:
            yield env.timeout(every)
            ticks.append(s.memory()["allocated"])

    return whole(work, memory(work, share), "none", control=[monitor])[0], len(ticks)


def with_monitor(kernels: int, repeat: int) -> None:
    """A SimPy process that samples the memory."""
    work = bound(training(kernels))
    print("a SimPy process that looks at the memory about every ten kernels, thousand kernels per second")
    for share in SHARES:
        alone, sim = island(work, memory(work, share), "none", 1)
        runs = [monitored(work, share, sim.now * 10 // work.trace.ops) for _ in range(repeat)]
        second = statistics.median(seconds for seconds, _ in runs)
        print(f"{share:6.0%} {work.trace.ops / second / 1e3:8.0f} with {runs[0][1]:,} ticks,"
              f" {work.trace.ops / alone / 1e3:8.0f} alone")  # fmt: skip
    print()


def with_policy(work: workload.Workload, name: str) -> tuple[float, Simulation]:
    """(CPU seconds of the island, the simulation) with this eviction policy."""
    sim = simulation(work, memory(work, 0.6), "none", ASKED[name])
    return timed(partial(sim.advance, state.NEVER))[0], sim


def asked(kernels: int, repeat: int) -> None:
    """Policies in plain Python."""
    work = bound(training(kernels))
    print(f"eviction policies in plain Python, {work.trace.ops:,} kernels at 60 % of the footprint")
    for text in ASKED:
        seconds = []
        for _ in range(repeat):
            taken, sim = with_policy(work, text)
            seconds.append(taken)
        n = outcome.metrics(sim)
        victims, second = n["swap_outs"] + n["clean_drops"], statistics.median(seconds)
        print(f"{text:20} {victims / second / 1e3:8.0f} thousand victims/s ({victims:,} victims, {second:.2f} s)", flush=True)
    print()


# --- size -----------------------------------------------------------------------------------------------------------------


def replay_file(path: str) -> dict[str, float]:
    """One process's answer: seconds and peak memory of reading a trace, making its workload, and replaying it."""
    out: dict[str, float] = {}
    read, trace = timed(partial(load_trace, path))
    out["read"] = read
    make, work = timed(partial(bound, trace))
    seconds, result = whole(work, memory(work, 0.6), "next_k(k=4)")
    assert result.finished, result.failure
    return out | {"workload": make, "simulate": seconds, "events": trace.events, "peak_bytes": peak_memory()}


def peak_memory() -> int:
    """Bytes of memory that this process held at most; on Linux ru_maxrss would count its parent's at the fork as well."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def growth(events: int) -> None:
    """Time and memory by length of the trace."""
    print("trace from a file, next_k prefetch, memory for 60 % of the footprint; each in a process of its own")
    print(f"{'events':>12} {'read s':>7} {'workload s':>11} {'simulate s':>11} {'million events/s':>17} {'peak GB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for count in (events // 10, events * 3 // 10, events):
            path = str(Path(folder) / f"{count}.npz")
            for task in (f"write {path} {count}", f"replay {path}"):
                done = subprocess.run([sys.executable, __file__, "--task", task], check=True, capture_output=True, text=True)
            r = json.loads(done.stdout)
            print(f"{int(r['events']):12,} {r['read']:7.1f} {r['workload']:11.1f} {r['simulate']:11.1f}"
                  f" {r['events'] / r['simulate'] / 1e6:17.2f} {r['peak_bytes'] / 1e9:8.2f}", flush=True)  # fmt: skip


def task(words: list[str]) -> int:
    """What a process of its own does: write a trace, or replay one."""
    if words[0] == "write":
        save_trace(training(int(int(words[2]) * 3 / 7)), words[1])  # seven events for three kernels
    else:
        print(json.dumps(replay_file(words[1])))
    return 0


# --- side_by_side.py ------------------------------------------------------------------------------------------------------


def loads() -> dict[str, Callable[[], float]]:
    """name -> CPU seconds of one run.  island: the loop alone; simulate: from a workload to a result."""
    programs = {"training": bound(training(20_000)), "two streams": bound(two_streams(20_000))}
    long = programs["training"]
    made: dict[str, Callable[[], float]] = {}
    for name, work in programs.items():
        for prefetch in ("none", "next_k(k=4)"):
            for share in SHARES:
                room = memory(work, share)
                made[f"island {name} {prefetch} {share:.0%}"] = lambda w=work, r=room, p=prefetch: island(w, r, p, 1)[0]
        made[f"simulate {name}"] = lambda w=work: whole(w, memory(w, 0.6), "next_k(k=4)")[0]
        made[f"simulate {name}, with a log"] = lambda w=work: whole(w, memory(w, 0.6), "next_k(k=4)", log=True)[0]
        made[f"workload {name}"] = lambda w=work: timed(partial(bound, w.trace))[0]
    short = bound(training(300))
    made["simulate 300 kernels"] = lambda: whole(short, memory(short, 0.6), "next_k(k=4)")[0]
    made["monitor"] = lambda: monitored(programs["two streams"], 0.6, 2_000_000)[0]
    for text in ASKED:
        made[f"evict {text}"] = lambda t=text: with_policy(programs["two streams"], t)[0]
    for name, work in {"300 kernels": short, "20,000 kernels": long}.items():
        view = view_of(work, machine_of(work.trace, catalogue.load(MACHINE), memory(work, 0.6)))
        made[f"planners' estimate, {name}"] = lambda v=view: timed(partial(guesses, v, 100 if v.work is short else 1))[0]
    made["read"] = partial(read_back, long.trace)
    return made


def guesses(view: View, count: int) -> None:
    for _ in range(count):
        estimate(view, NOTHING)


def read_back(trace: Trace) -> float:
    with tempfile.TemporaryDirectory() as folder:
        save_trace(trace, path := str(Path(folder) / "trace.npz"))
        return timed(partial(load_trace, path))[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=int, default=1_000_000, help="of the long program")
    parser.add_argument("--rival", type=int, default=20_000, help="kernels that SimPy has to run")
    parser.add_argument("--events", type=int, default=10_000_000, help="of the longest trace; 0: leave this out")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=("simpy", "monitor", "ask", "growth"))
    parser.add_argument("--task", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.task:
        return task(o.task.split())
    island(bound(training(300)), 10**12, "next_k(k=4)", 1)  # compiles, or finds the cache
    wrong = against_simpy(o.rival, o.kernels, o.repeat) if o.only in (None, "simpy") else 0
    if o.only in (None, "monitor"):
        with_monitor(o.kernels // 5, o.repeat)
    if o.only in (None, "ask"):
        asked(o.kernels // 10, o.repeat)
    if o.only in (None, "growth") and o.events:
        growth(o.events)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
