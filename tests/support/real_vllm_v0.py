"""vLLM's own v0 scheduler and block manager (0.9.2) behind the interface of `v0_cases.Player`; in a process of its own.

    python -m real_vllm_v0 FIRST_SEED SEEDS   compare with this project's scheduler in all families; prints the counts
    python -m real_vllm_v0 speed FIRST_SEED SEEDS   steps in a CPU second of both sides
    python -m real_vllm_v0 record FILE        write the recorded sample
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
import time
import types
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import real_classes
import v0_cases
from step_clock import ready
from v0_cases import FAILS, FAMILIES, STOPS, V0Case

RELEASE = "vllm-0.9.2"
SAMPLE = (901,)
MOST = 5000  # steps of a case whose speed is taken


def load() -> Any:
    """The modules `scheduler` and `sequence`; time is the number of a step."""
    import msgspec  # noqa: F401  # the real classes need it, and PyTorch
    import torch  # noqa: F401

    root = real_classes.folder(RELEASE)
    if root is None:
        sys.exit(real_classes.absent(RELEASE))
    real_classes.imports("vllm", root, ("vllm.core.", "vllm.sequence", "vllm.utils"))
    sys.modules["vllm.utils"] = _utilities(root)
    import vllm.core.scheduler as scheduler  # type: ignore[import-not-found]
    import vllm.sequence as sequence  # type: ignore[import-not-found]

    return scheduler, sequence


def _utilities(root: Path) -> types.ModuleType:
    """The few functions of vllm/utils that these modules use, without what else that imports."""
    tree = ast.parse((root / "utils" / "__init__.py").read_text())
    wanted = ("Device", "PyObjectCache", "chunk_list", "cdiv")
    tree.body = [n for n in tree.body if getattr(n, "name", "") in wanted]
    module = types.ModuleType("vllm.utils")
    module.STR_NOT_IMPL_ENC_DEC_PREFIX_CACHE = module.STR_NOT_IMPL_ENC_DEC_SWA = ""  # type: ignore[attr-defined]
    exec("import enum\nfrom typing import TypeVar\nT = TypeVar('T')", vars(module))
    exec(compile(tree, "vllm/utils", "exec"), vars(module))
    return module


class RealV0:
    """Scheduler, with sequences that append a token of their own at each step."""

    def __init__(self, modules: Any, c: V0Case) -> None:
        self.module, self.sequence = modules
        self.case = c
        ticks = itertools.count(1)
        clock = types.SimpleNamespace(time=lambda: float(self.now), perf_counter=lambda: 0.0)
        self.module.time, self.now, self.ticks = clock, 0, ticks
        engine = types.SimpleNamespace(
            runner_type="generate", max_num_partial_prefills=1, max_long_partial_prefills=1, long_prefill_token_threshold=0,
            max_num_batched_tokens=c.tokens, max_num_seqs=c.seqs, max_model_len=c.longest, is_multi_step=False,
            chunked_prefill_enabled=bool(c.chunked), num_lookahead_slots=0, num_scheduler_steps=1, delay_factor=0.0,
            policy="priority" if c.priority else "fcfs", send_delta_data=False,
            preemption_mode="swap" if c.host else "recompute",
        )  # fmt: skip
        cache = types.SimpleNamespace(
            is_attention_free=False, num_gpu_blocks=c.blocks, num_cpu_blocks=c.host, block_size=c.block, sliding_window=None,
            enable_prefix_caching=bool(c.caching),
        )  # fmt: skip
        self.scheduler = self.module.Scheduler(engine, cache, None)
        manager = self.scheduler.block_manager
        manager.watermark_blocks = int(c.watermark * c.blocks)
        self.groups: dict[int, Any] = {}
        self.tokens = itertools.count(10**6)
        self.told: Any = None

    def arrive(self, r: int) -> None:
        inputs = {"type": "token", "prompt_token_ids": list(self.case.requests[r][1])}
        seq = self.sequence.Sequence(r, inputs, self.case.block)
        group = self.sequence.SequenceGroup(
            request_id=str(r), seqs=[seq], arrival_time=float(r), sampling_params=None, priority=self.case.requests[r][3]
        )
        self.groups[r] = group
        self.scheduler.add_seq_group(group)

    def leave(self, r: int) -> None:
        self.scheduler.abort_seq_group(str(r))

    def step(self) -> tuple[Any, ...]:
        self.now = next(self.ticks)
        try:
            _, told, _ = self.scheduler.schedule()
        except RuntimeError as error:
            if "swap space" not in str(error):
                raise
            return (STOPS,)
        except (AssertionError, KeyError):
            return (FAILS,)
        self.told = told
        manager, s = self.scheduler.block_manager, self.scheduler
        scheduled = sorted((int(g.seq_group.request_id), g.token_chunk_size) for g in told.scheduled_seq_groups)
        running = [int(g.request_id) for g in s.running]
        blocks = [list(manager.get_block_table(self.groups[r].first_seq)) for r in running]
        free = [manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks()]
        lines = [[int(g.request_id) for g in line] for line in (s.waiting, s.swapped)]
        return (scheduled, running, *lines, blocks, free, sorted(int(g.request_id) for g in told.ignored_seq_groups))

    def over(self) -> list[int]:
        ended = []
        for scheduled in self.told.scheduled_seq_groups:
            group = scheduled.seq_group
            group.update_num_computed_tokens(scheduled.token_chunk_size)
            seq = group.first_seq
            if seq.data.get_num_uncomputed_tokens():
                continue
            token = next(self.tokens)
            seq.append_token_id(token, {token: self.sequence.Logprob(0.0)})
            r = int(group.request_id)
            if seq.get_output_len() >= self.case.requests[r][2] or seq.get_len() >= self.case.longest:
                seq.status = self.sequence.SequenceStatus.FINISHED_LENGTH_CAPPED
                ended.append(r)
        self.scheduler.free_finished_seq_groups()
        return sorted(ended)

    def quietly(self) -> bool:
        self.now = next(self.ticks)
        _, self.told, _ = self.scheduler.schedule()
        self.over()
        return bool(self.told.scheduled_seq_groups or self.told.ignored_seq_groups)


def speed(first: int, seeds: int) -> None:
    """Steps in a CPU second of both sides on the same cases, output off; of this project in a compiled loop and from Python."""
    drawn = [v0_cases.case(seed, f) for f in ("plain", "chunked") for seed in range(first, first + seeds)]
    # Where requests that do not fit together take turns for ever, there is no end to be timed.
    cases = [c for c in drawn if ready(v0_cases.SimulatedV0(c, at_once=True).run, most=MOST)()[0] < MOST]
    compiled = [ready(v0_cases.SimulatedV0(c, at_once=True).run) for c in cases]
    asked = [(c, v0_cases.SimulatedV0(c)) for c in cases]
    v0_cases.rush(cases[0], v0_cases.SimulatedV0(cases[0]))  # compiled now
    ready(v0_cases.SimulatedV0(cases[0], at_once=True).run)()
    modules = load()
    sides = (
        ("simulated", compiled, lambda play: play()[0]),
        ("simulated, from Python", asked, lambda pair: v0_cases.rush(*pair)),
        ("real", [(c, RealV0(modules, c)) for c in cases], lambda pair: v0_cases.rush(*pair)),
    )
    for name, players, play in sides:
        begun = time.process_time()
        steps = sum(play(player) for player in players)
        took = time.process_time() - begun
        print(f"{name}: {steps} steps in {took:.3f} s of CPU time, {steps / took:,.0f} a second")


def compare(first: int, seeds: int) -> Counter[str]:
    """Steps by family, and differences; a case ends at its first."""
    counts: Counter[str] = Counter()
    seconds = [0.0, 0.0]
    makers = (v0_cases.SimulatedV0, partial(RealV0, load()))
    for family in FAMILIES:
        for seed in range(first, first + seeds):
            c = v0_cases.case(seed, family)
            sides, before = [v0_cases.play(c, make) for make in makers], None
            while True:
                got = []
                for k, side in enumerate(sides):
                    begun = time.process_time()
                    got.append(next(side, None))
                    seconds[k] += time.process_time() - begun
                if got[1] == (FAILS,):
                    counts[f"{family}: {FAILS}"] += 1
                    break
                if got[0] != got[1]:
                    counts["differences"] += 1
                    print("differs", family, seed, got, flush=True)
                if got[0] is None or got[0] != got[1]:
                    break
                _tally(counts, family, got[0])
                _preemptions(counts, family, before, got[0])
                before = got[0] if len(got[0]) > 1 else before
    print(f"CPU seconds: simulated {seconds[0]:.1f}, real {seconds[1]:.1f}")
    return counts


def _tally(counts: Counter[str], family: str, told: tuple[Any, ...]) -> None:
    if told[0] == STOPS:
        counts[f"{family}: {STOPS}"] += 1
    if len(told) > 1:
        counts["steps"] += 1
        counts[f"{family}: steps"] += 1
        counts[f"{family}: swapped out at the time"] += bool(told[3])
        counts[f"{family}: refused"] += len(told[6])


def _preemptions(counts: Counter[str], family: str, before: Any, told: tuple[Any, ...]) -> None:
    """Requests that ran in the step before and wait now."""
    if before is not None and len(told) > 1:
        counts[f"{family}: preempted"] += len(set(before[1]) & {*told[2], *told[3]})


def record(path: str) -> None:
    """Steps of the real classes in a sample: what the continuous integration compares with."""
    make = partial(RealV0, load())
    cases = [
        {"family": f, "seed": s, "steps": list(itertools.islice(v0_cases.play(v0_cases.case(s, f), make), 60))}
        for f in FAMILIES for s in SAMPLE
    ]  # fmt: skip
    with open(path, "w") as file:
        file.write(json.dumps({"of": RELEASE})[:-1] + ', "cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n")


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2])
    elif sys.argv[1] == "speed":
        speed(*map(int, sys.argv[2:]))
    else:
        for name, many in sorted(compare(*map(int, sys.argv[1:])).items()):
            print(f"{many:>9} {name}")
