"""The tables of held-out operators and published runs, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.calibrate.serving import vidur
from gpusim.calibrate.serving.operators import FROM_FORM, FROM_KIN, LINKS, WITHIN, SliceError
from gpusim.calibrate.serving.runs import ScoredRun, errors
from gpusim.calibrate.serving.steps import STEP
from gpusim.machine.serving import step

RUN_HEAD = (
    "| run | TTFT, ms | simulated | error | TPOT, ms | simulated | error | p99 TTFT | p99 TPOT | tokens/s | parts |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)
_RULES = (*WITHIN, "version", FROM_KIN, FROM_FORM, LINKS, vidur.RULE)
_GOAL = {FROM_KIN: "15", FROM_FORM: "15", LINKS: "", vidur.RULE: ""}

INTRODUCTION = """# Step times of serving engines, held out and published

This page is what `python -m gpusim.calibrate.serving page` prints, of what `operators` and `score` have kept (the package
aiconfigurator-core 0.12.0 has the tables). How step times are made: [serving_times.md](serving_times.md).

## Slices of the tables

Whole slices are held out in turn and said by the rest: a number of attention heads (each but the smallest and the largest), a
range of batches or rows (a factor of four), a number of inputs or outputs of products, a framework's version (by the version
before), a GPU (by its kin's table; by the kernel-time model where it has none). Steps are those of Llama 8B on one GPU, Qwen3
32B on two, Llama 70B on four (fp8) and eight: decode of 1 to 256 requests with 256 to 4,096 tokens, prompts, chunks and mixed
steps, without host and collectives; the truth is the same step of all tables, since whole steps were not measured. Steps that
need nothing of a slice are not counted. Beside the slices: all-reduces of frameworks, said by NCCL's on the machine's links,
and operators that Vidur measured in the vLLM of 2024, with launches between them. |stated / measured - 1|, median / 90th
percentile (signed median), in per cent; of several machines the median, and the least and the most.

The kernel-time model was fitted to other tables of A100, H100, L40S and B200, from the same source: left out, they are not
unseen by it. H200, GB200 and B300 are.
"""

RUNS = """## Whole runs

400 runs that others published, with engine, version, model, GPUs, lengths and requests at once:
`gpusim/calibrate/data/serving_published.yaml`. Half of them, drawn by the hash of their names before any was simulated, was
held out and scored once, after the code was done, and once more after two defects were mended (below). No number is fitted to a
run.

* **How a run is simulated.** Clients as many as requests at once; each sends its next request when its last one is answered.
  The scheduler is the nearest version that is modelled; with async scheduling, which all runs of InferenceMAX had, that of vLLM
  0.33. It has the KV blocks that fit into 90 % of the memory beside the weights. Lengths are drawn as the source says.
* **What is compared.** The sources do not say whether times are means or medians. On the visible half means agree, medians do
  not: simulated means of TTFT of Llama 70B on H100s are 3 % off in the median and simulated medians 40 %; the difference is the
  first requests, which come all at once. TTFT and TPOT are therefore means. p99 and tokens of output in a second are simulated,
  without a published number beside them.
* **Options stated.** Of the runs of InferenceMAX all options of the engine are published. Of the others none are, and those of
  Llama 8B cannot be what their names say: with 112 clients, prompts of 1,000 and outputs of 100 tokens, 11 prompts come with
  each decoding step, and computing them alone takes longer than the published TPOT. They are shown, and not counted.

What the visible half shows: on H100s and H200s the tables carry whole runs. With 32 requests of 8,192 tokens on two H100s the
published TTFT is that of an engine without room for them all; the simulated one has room. All-reduces of one version on eight
H200s took twice as long as in any other, which runs do not show: the median of versions counts since then.

**Two defects** were found by reading the sources of the rows. The tables count all-reduces in elements, for vLLM and SGLang too
(`collector/network/collect_all_reduce.py` of aiconfigurator); they had been read as bytes, so that each took as long as one of
twice its size. At 256 MiB NCCL's times on the machine's links, which know nothing of the tables, are within 15 % of them since
(two, four and eight A100, H100, H200, B200; within 4 % on eight). And the runs of InferenceMAX had async scheduling
(`async-scheduling: true`), under which a first token comes a step later. Before, TTFT of the held-out runs with options stated
was 15.5 % (H100), 8.7 % (H200) and 27.6 % (B200) off.

**On B200s** prompts of 1,024 tokens take longer than their kernels: TTFT is 25 ms above the simulated one on one GPU, 60 to 100
ms on eight, where those kernels take a fraction of the time; on H100s and H200s that differs by a few ms. Only there the engine
was started with `cudagraph_mode: FULL_DECODE_ONLY` and `splitting_ops: []`: a step with a prompt is launched kernel by kernel
from one flat graph, which Python walks through twice as slowly as through one in pieces ([vLLM
20050](https://github.com/vllm-project/vllm/pull/20050)). [vLLM 20059](https://github.com/vllm-project/vllm/pull/20059) has a
profile of it: 56 ms, and 5 ms before the first kernel; model and CPU are not named there (its benchmarks are of Qwen2.5 7B, of
28 layers). For 80 layers on the CPUs of these hosts no number is published, so simulated steps have the launches of their
kernels alone. One row says it: with 94 ms for each step with a prompt `llama-70b-hgx-b200-1024-1024-c4-tp8` comes out, and then
TTFT of the visible runs is 11.5 % off and of the held-out ones 15.2 % (`score --launching 94 --only b200`). What is left are
prompts of 8,192 tokens, 10 to 20 % too fast.
"""


def page(held: Sequence[SliceError], scored: Sequence[ScoredRun]) -> str:
    """Everything."""
    parts = [INTRODUCTION.rstrip(), slices(held), operators(held), RUNS.rstrip()]
    for title, held_out in (("Visible", False), ("Held out", True)):
        own = [one for one in scored if one.run.held_out == held_out]
        if own:
            parts.append(f"### {title}\n\n{summary(own)}")
    for title, held_out in (("Visible", False), ("Held out", True)):
        own = [one for one in scored if one.run.held_out == held_out and one.run.set.flags_stated]
        if own:
            parts.append(f"### Runs with all options stated: {title.lower()}\n\n" + "\n".join([RUN_HEAD, *map(run_row, own)]))
    return "\n\n".join(parts)


def slices(held: Sequence[SliceError]) -> str:
    """Steps, by rule and machine."""
    lines = ["| steps, held out | goal | vLLM | SGLang |", "| --- | --- | --- | --- |"]
    for rule in _RULES:
        cells = [
            ", ".join(f"{machine} {_shown(rows)}" for machine, rows in _by_machine(held, rule, framework).items())
            for framework in ("vllm", "sglang")
        ]
        if any(cells):
            lines.append(f"| {rule} | {_GOAL.get(rule, '5')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_machine(held: Sequence[SliceError], rule: str, framework: str) -> dict[str, list[SliceError]]:
    found: dict[str, list[SliceError]] = {}
    for one in held:
        if one.rule == rule and one.kind == STEP and one.framework == framework:
            found.setdefault(one.machine, []).append(one)
    return found


def operators(held: Sequence[SliceError]) -> str:
    """Operators, by rule, class and type: over machines, and the range of their medians."""
    lines = [
        "| operators, held out | class | type | goal | rows | vLLM | SGLang |",
        "| --- | --- | --- | --- | ---: | --- | --- |",
    ]
    for rule in _RULES:
        kinds = dict.fromkeys((one.kind, one.dtype) for one in held if one.rule == rule and one.kind != STEP)
        for kind, dtype in kinds:
            own = [one for one in held if (one.rule, one.kind, one.dtype) == (rule, kind, dtype)]
            cells = [_range([one for one in own if one.framework == framework]) for framework in ("vllm", "sglang")]
            rows = sum(one.rows for one in own)
            lines.append(f"| {rule} | {kind} | {dtype} | {_GOAL.get(rule, '5')} | {rows} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _range(own: Sequence[SliceError]) -> str:
    if not own:
        return ""
    low, high = min(own, key=lambda one: one.median), max(own, key=lambda one: one.median)
    if len(own) == 1:
        return f"{low.machine} {_shown([low])}"
    middle = float(np.median([one.median for one in own]))
    return f"{100 * middle:.1f}; {low.machine} {_shown([low])} to {high.machine} {_shown([high])}"


def _shown(rows: Sequence[SliceError]) -> str:
    """Of several, weighted by their rows."""
    weight = np.array([one.rows for one in rows], float)
    median, p90, signed = (
        float(np.average([getattr(one, name) for one in rows], weights=weight)) for name in ("median", "p90", "signed")
    )
    return f"{100 * median:.1f} / {100 * p90:.0f} ({100 * signed:+.1f})"


def summary(scored: Sequence[ScoredRun]) -> str:
    """Errors by set, and of all whose options are stated."""
    lines = [
        "| set | options stated | runs | TTFT: median / p90 (signed), % | TPOT: median / p90 (signed), % |",
        "| --- | --- | ---: | --- | --- |",
    ]
    names = dict.fromkeys(one.run.set.name for one in scored)
    groups = {name: [one for one in scored if one.run.set.name == name] for name in names}
    stated = [one for one in scored if one.run.set.flags_stated]
    if stated:
        groups["all with options stated"] = stated
    for name, own in groups.items():
        found = [errors(own, which) for which in (0, 1)]
        cells = [f"{100 * e.median:.1f} / {100 * e.p90:.0f} ({100 * e.signed:+.1f})" if e else "" for e in found]
        said = "yes" if own[0].run.set.flags_stated else "no"
        lines.append(f"| {name} | {said} | {len([o for o in own if o.simulated])} of {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run_row(scored: ScoredRun) -> str:
    """One line of the table."""
    run, found = scored.run, scored.simulated
    if found is None or scored.errors is None:
        return f"| {run.name} | {run.ttft:.4g} | - | | {run.tpot:.4g} | - | | | | | {scored.why} |"
    ttft, tpot = (f"{100 * error:+.1f} %" for error in scored.errors)
    parts = ", ".join(f"{name} {100 * part:.0f} %" for name, part in zip(step.PARTS, found.parts, strict=True) if part >= 0.005)
    return (
        f"| {run.name} | {run.ttft:.4g} | {found.ttft:.4g} | {ttft} | {run.tpot:.4g} | {found.tpot:.4g} | {tpot} "
        f"| {found.ttft_p99:.4g} | {found.tpot_p99:.4g} | {found.throughput:.0f} | {parts} |"
    )
