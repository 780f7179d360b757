"""Do links, racks, pages and hosts in words become the failures that they mean, and steps those of the machine that is left?"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine.failures.run import FailureKind, between_interruptions
from gpusim.machine.topology import build, faults
from gpusim.studies.failures import costs
from gpusim.studies.failures.answer import answer
from gpusim.studies.failures.kinds import FailureContext, kinds_of
from gpusim.studies.failures.setup import LongRunSpec, prepare
from gpusim.studies.failures.steps import SimulatedSteps, with_fault

HOUR = 3600e9
WORDS = {"machine": "4 x hgx-h100", "state": "llama-8b", "storage": "10 GB/s"}
RUNS = {"program": "llama-1b-train", "parallel": "zero=3"}


def context(direct: bool = False) -> FailureContext:
    return FailureContext(8, 4, 12, 60e9, 24 * HOUR, lambda name, left: 0.5 + left / 2, direct)


def one(word: str, direct: bool = False) -> FailureKind:
    (kind,), told = kinds_of(word, context(direct))
    assert told == ()
    return kind


@pytest.mark.hand_worked
def test_kinds_have_their_components_and_effects() -> None:
    assert one("gpu(repair=2 h) 100 h").repair == 2 * HOUR and one("gpu 100 h").each == 8
    slow = one("nic(rate=0.25, lasts=10 min) 200 h")
    assert (slow.effect, slow.speed, slow.lasts, slow.each) == ("slow", 0.625, 600e9, 4)
    dead = one("nic(repair=3 h) 9000 h")
    assert (dead.effect, dead.speed, dead.lasts, dead.interrupts) == ("degrade", 0.5, 3 * HOUR, True)
    assert one("nic(then=replace) 9000 h").effect == "lose_node"
    assert one("link 9000 h").effect == "lose_node"  # behind an NVSwitch a GPU without its port is none
    assert (one("link 9000 h", direct=True).effect, one("link 9000 h", direct=True).each) == ("degrade", 12)
    rack = one("rack(nodes=4) 900 d")
    assert (rack.each, rack.group, rack.host_lost, rack.between) == (0.25, 4, True, 900 * 24 * HOUR)
    assert (one("page 50 h").bytes, one("page 50 h").effect) == (65536, "shrink")
    assert (one("slow(speed=0.9, lasts=1 h) 50 h").speed, one("link(speed=0.9, lasts=1 h) 5 h").speed) == (0.9, 0.9)
    assert [kind.name for kind in kinds_of("gpu 5 h, rack(nodes=4, repair=1 h) 9 d", context())[0]] == [
        "gpu", "rack(nodes=4, repair=1 h)",
    ]  # fmt: skip


def test_a_log_names_kinds_with_their_brackets(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text('seconds,kind,node\n3600,"nic(speed=0.5, lasts=2 h)",1\n90000,rack(nodes=2),3\n')
    times = {"work": "30 h", "every": "30 min", "repair": "1 h", "detect": "10 s", "restart": "50 s"}
    found = answer(prepare(LongRunSpec(**WORDS, **times, failures=str(log)))).runs.courses[0]
    assert list(found.counts.values()) == [1, 1] and found.interruptions == 1
    assert found.spent["short"] == pytest.approx(HOUR)  # two nodes of a rack of four are gone until they are repaired


@pytest.mark.hand_worked
def test_faults_leave_the_links_that_they_leave() -> None:
    machine = build.load("2 x hgx-h100")
    half = faults.slower(machine, faults.NETWORK, 0.5)
    assert half.links["n0.nic3", "network"].rate == machine.links["n0.nic3", "network"].rate / 2
    assert half.links["n0.gpu0", "n0.nvswitch"].rate == machine.links["n0.gpu0", "n0.nvswitch"].rate
    without = faults.without_card(machine)
    assert len(without.of_kind("nic")) == 14 and without.hosts == 2
    dgx = build.load("dgx-1-v100")
    pair = next(ends for ends, link in dgx.links.items() if link.kind == "nvlink" and link.count == 2)
    first = next(ends for ends, link in dgx.links.items() if link.kind == "nvlink")
    fewer = with_fault(dgx, ("link", 0.0))
    wires = {ends: link.count for ends, link in dgx.links.items() if link.kind == "nvlink"}
    left = {ends: link.count for ends, link in fewer.links.items() if link.kind == "nvlink"}
    assert sum(wires.values()) - sum(left.values()) == 2 and left.get(first, 0) == wires[first] - 1  # one wire, both ways
    assert dgx.links[pair].rate == 2 * dgx.links[next(e for e, c in wires.items() if c == 1)].rate
    with pytest.raises(GpusimError, match="no wires to each other"):
        faults.without_wire(machine)


@pytest.mark.slow
@pytest.mark.agreement
def test_a_copy_with_half_of_each_card_costs_what_cards_of_half_the_rate_cost() -> None:
    """27.6 GB/s leave a host beside each card of 47.7, more than its half: the links are shared max-min fairly."""
    steps, machine = SimulatedSteps("llama-1b-train", "zero=3", "4 x hgx-h100"), build.load("2 x hgx-h100")
    of = costs.CheckpointCosts(machine, 8, costs.words("peers"), 10**12, 1000.0)
    to_peers, to_storage = of.beside(steps, 4)
    assert to_peers == pytest.approx(steps.keeps(("nic", 0.5)), abs=1e-9) and to_storage == pytest.approx(to_peers)
    slow = costs.CheckpointCosts(machine, 8, costs.words("two_phase"), 10**12, 32.0).beside(steps, 4)[1]
    assert 1 - slow == pytest.approx((1 - steps.keeps(("nic", 1 - 1 / 47.7))), rel=0.01)  # 1 of 47.7 GB/s of each card
    assert 0.9 < to_peers < slow < 1.0


@pytest.mark.slow
@pytest.mark.agreement
def test_a_program_that_uses_its_host_has_less_of_it_beside_a_checkpoint() -> None:
    """Optimizer states come over the links that the copies take: the uplinks of two GPUs each, and the host's memory."""
    steps, machine = SimulatedSteps("llama-1b-train | offload(what=optimizer)", "", "hgx-h100"), build.load("hgx-h100")
    keeps = {rate: costs.CheckpointCosts(machine, 8, costs.words("two_phase"), 10**11, rate).beside(steps, 1)[1]
             for rate in (1.0, 50.0, 500.0)}  # fmt: skip
    assert keeps[500.0] < 0.85 < keeps[50.0] < 0.99 < keeps[1.0] < 1.0
    assert SimulatedSteps("llama-1b-train", "", "hgx-h100").keeps(beside=tuple(costs.leaving_flows(machine, 8))) == 1.0
    with pytest.raises(GpusimError, match="128 ranks are too many to simulate each"):
        SimulatedSteps("llama-1b-train | offload(what=optimizer)", "", "16 x hgx-h100").ns()


@pytest.mark.slow
@pytest.mark.agreement
def test_a_job_that_shrinks_has_steps_of_its_own() -> None:
    steps = SimulatedSteps("llama-1b-train", "zero=3", "8 x hgx-h100")
    found = steps.paces(8, 2, 1)
    assert sorted(found) == [2, 3, 4, 5, 6, 7, 8] and found[8] == 1.0
    assert found[2] == 2 / 8 * steps.ns(8) / steps.ns(2) > 2 / 8  # exchanges of fewer nodes take less
    run = prepare(LongRunSpec(**{**WORDS, "machine": "8 x hgx-h100"}, **RUNS, least=2))
    assert run.job.pace == found
    assert run.cost.fewer[4].stop == pytest.approx(2 * run.cost.stop, rel=1e-3)  # each node has twice as much
    assert run.cost.fewer[4].to_storage == run.cost.to_storage  # the storage takes it all the same


@pytest.mark.hand_worked
def test_a_host_that_leaks_ends_the_program_again_and_again() -> None:
    host = "rank 8 x 20 GB, loader 64 x 4 GB + 1 GB/h, logs 1 x 100 GB, limit 600 GB"
    run = prepare(LongRunSpec(**WORDS, failures="job 1000000 d", host=host, checkpoint="two_phase(agent=1)", work="100 h"))
    (killed,) = run.kills
    copies = 2 * run.state / 4
    full = (600e9 / (513 / 512) - 8 * 20e9 - 64 * 4e9 - copies) / 64e9
    assert killed.at / HOUR == pytest.approx(full, rel=1e-5) and killed.process.name == "agent"
    assert run.kinds[-1].host_lost  # the copies in host memory go with it
    found = answer(run, runs=2).runs.courses[0]
    runs = sum(found.spent[phase] for phase in ("computing", "copying", "blocked")) / HOUR
    assert found.counts["host_memory"] == found.interruptions == int(runs / full)
    spared = prepare(LongRunSpec(**WORDS, host=host + ", agent 1 x 1 GB adj=-500", checkpoint="two_phase(agent=1)"))
    assert spared.kills[0].process.name == "rank" and not spared.kinds[-1].host_lost


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"failures": "nic 200 h"}, "depends on the program"),
        ({"failures": "nic(rate=0.5) 200 h", **RUNS}, "how long is a nic slow"),
        ({"failures": "nic(rate=2, lasts=1 h) 200 h", **RUNS}, "rate=2 is no share"),
        ({"failures": "nic(then=stop) 200 h"}, "then=stop is unknown"),
        ({"failures": "nic(nodes=3) 200 h"}, "a failing nic has no 'nodes'"),
        ({"failures": "rack 200 h"}, "how many nodes has a rack"),
        ({"failures": "rack(nodes=1) 200 h"}, "no number of nodes that fail together"),
        ({"failures": "slow 200 h"}, "how slow is a slow rank"),
        ({"failures": "gpu -5 h"}, "is negative"),
        ({"failures": "gpu 5 parsecs"}, "gpu 5 parsecs"),
        ({"failures": "page 5 h"}, "of how much can a GPU do without"),
        ({"failures": "gpu 5 h, gpu 7 h"}, "told twice"),
        ({"program": "llama-1b-train", "parallel": "data=4"}, "follows from the job's GPUs"),
        ({"program": "llama-1b-train", "parallel": "tensor=5"}, "not whole groups of 5"),
        ({"parallel": "zero=3"}, "none is named"),
        ({"program": "llama-9b-train"}, "there is no trace 'llama-9b-train'"),
        ({"host": "loader 4 x 5 GB"}, "have no rank"),
        ({"host": "rank"}, "no process of a host"),
        ({"host": "rank 8 x 300 GB"}, "Linux kills rank .* before the first step"),
        ({"host": "rank 8 x 3 GB adj=-2000"}, "-1000 to 1000"),
        ({"margin": "-1 GiB", "failures": "page 5 h"}, "margin"),
        ({"detect": "-5 min"}, "detect"),
        ({"work": "0 s"}, "a run cannot have 0 s"),
        ({"storage": "fast"}, "storage: "),
        ({"storage": "0 GB/s"}, "takes no checkpoint"),
        ({"checkpoint": "peers(copies=1.5)"}, "copies of a checkpoint is 1.5"),
        ({"checkpoint": "sync(copies=2)"}, "a sync checkpoint has no 'copies'"),
        ({"checkpoint": "peers(copies=0)"}, "copies of a checkpoint is 0"),
        ({"checkpoint": "peers(each=-1)"}, "each of a checkpoint is -1"),
        ({"every": "0 s"}, "leaves no time to work"),
        ({"every": "-5 min"}, "every: '-5 min' is negative"),
        ({"least": 9}, "cannot go on with 9"),
        ({"unit": 0}, "needs work to do"),
        ({"spare": 9}, "none is left beside 9 spare ones"),
        ({"machine": "16 x h100-sxm-80gb"}, "one host of 16 GPUs, which fail together, and boards have 8 .write 2 x hgx-h100"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(words: dict[str, object], said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        answer(prepare(LongRunSpec(**{**WORDS, **words})), runs=1)


@pytest.mark.slow
@pytest.mark.formulas
def test_pages_that_retire_take_a_node_each_time_that_a_margin_is_used_up() -> None:
    """A GPU loses a page every 1000 h; the node of the first that has lost five leaves, and a new one comes."""
    words = {**WORDS, "failures": "page(bytes=64 KiB) 1000 h", "repair": "1 min", "restart": "1 s", "detect": "1 s"}
    run = prepare(LongRunSpec(**words, margin="256 KiB", work="2000 d"))
    drawn = np.random.default_rng(1).gamma(5.0, 1000.0, (40_000, 8)).min(axis=1).mean()
    assert between_interruptions(run.job, run.kinds) / HOUR == pytest.approx(drawn / 4, rel=0.01)
    mean = answer(run, runs=40, close=1.0).runs.mean("interruptions")
    assert mean.value == pytest.approx(2000 * 24 / (drawn / 4), rel=0.05)
    one = prepare(LongRunSpec(**words, margin="0 B"))
    assert between_interruptions(one.job, one.kinds) / HOUR == pytest.approx(1000 / 32, rel=1e-4)


def test_a_node_that_is_not_there_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("seconds,kind,node\n5,gpu,4\n")
    with pytest.raises(GpusimError, match=r"log\.csv:2: node 4 fails, and the job has 4 nodes, 0 to 3"):
        prepare(LongRunSpec(**WORDS, failures=str(log)))
    log.write_text("seconds,kind,node\nnan,gpu,1\n")
    with pytest.raises(GpusimError, match=r"log\.csv:2: the log of failures"):
        prepare(LongRunSpec(**WORDS, failures=str(log)))
    assert math.isinf(one("gpu 5 h").lasts) is False
