"""How far published sleeps, checkpoints and task switches are from what machines' numbers say."""

from statistics import median

import pytest
from hand_worked import machine

from gpusim.calibrate.sharing import suspend, switches
from gpusim.machine.suspending import SleepCosts

pytestmark = [pytest.mark.fast, pytest.mark.oracle]


def test_each_system_when_it_is_left_out():
    rows = suspend.rows()
    off = [abs(ns / row.measured - 1) for row, ns in zip(rows, suspend.left_out(rows), strict=True)]
    vllm = [error for error, row in zip(off, rows, strict=True) if row.system.startswith("vLLM")]
    driver = [error for error, row in zip(off, rows, strict=True) if row.system == "cuda-checkpoint"]
    switched = [abs(ms / row.measured - 1) for row, ms in switches.left_out()]
    assert (len(vllm), len(driver), len(switched)) == (47, 1, 30)
    assert median(vllm) < 0.16 and median(driver) < 0.10 and median(switched) < 0.12
    assert median([*off, *switched]) < 0.15


def test_the_costs_that_ship_are_those_of_all_rows():
    found, ships = suspend.fitted([row for row in suspend.rows() if row.what != "checkpoint"]), SleepCosts()
    for name in ("pin", "map", "release", "load"):
        assert getattr(ships, name) == pytest.approx(getattr(found, name), rel=0.02), name


def test_groups_have_all_parameters_of_their_models():
    """torchvision's and transformers' own numbers of parameters."""
    models = switches.published()[0].models
    sums = {name: sum(size * times for size, _, times in groups) for name, groups in models.items()}
    assert sums == {"resnet152": 60_192_808, "inception_v3": 27_161_264, "bert_base": 108_310_272}


def test_the_order_of_the_systems():
    """A pipeline of groups, copies without a pipeline, copies layer by layer, a process that starts."""
    for model in ("inception_v3", "bert_base"):
        times = [switches.mechanism(system, model) for system in ("pipeswitch", "grouped", "per_layer_no_pipeline")]
        assert times == sorted(times)


def test_groups_of_layers_are_computed_as_they_come():
    """At 1 byte/ns and a message of 5 ns: there at 105, 160, 265; computed 105-135, 160-240, 265-275."""
    profile = machine({"link.h2d": 1e9, "link.both": 2e9, "link.latency_queued": 0.0, "link.latency_synchronised": 0.0})
    groups = [switches.LayerGroup(100, 30), switches.LayerGroup(50, 80), switches.LayerGroup(100, 10)]
    assert switches.loaded(profile, groups, 5) == 275
    assert switches.loaded(profile, groups, 5, pipelined=False) == 265 + 120
