"""Do the shipped machines say what their sources say, and is a wrong profile refused at its place?"""

import csv
import re
from pathlib import Path

import pytest

from gpusim.base.errors import ConfigError, ProfileError
from gpusim.base.yaml import find
from gpusim.machine import catalogue
from gpusim.machine.profile import RULES, changed, load_file
from gpusim.machine.quantity import Quantity

NAMES = catalogue.names()
ROWS = Path(__file__).parents[1] / "data" / "measured_rows.csv"

# Printed by the driver of the machine itself, not by a benchmark; the source names the log.
FITTED = "rows of "  # with what source the refit of the catalogue (gpusim.show.calibration_refit) names the rows of a number
DEVICE_LOGS = {"memory.capacity", "host.capacity", "context"}


@pytest.fixture(scope="module")
def profiles():
    return {name: catalogue.load(name) for name in NAMES}


def test_are_the_machines_there_that_people_ask_for():
    wanted = (
        *("v100-pcie-16gb", "v100-sxm2-32gb", "t4", "a10", "a40", "l4", "l40s"),
        *("a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"),
        *("h100-pcie-80gb", "h100-sxm-80gb", "h100-nvl", "h200-sxm", "h200-nvl", "gh200-96gb", "b200-sxm"),
        *("rtx-2080-ti", "rtx-3090", "rtx-4090", "rtx-5090", "rtx-6000-ada"),
        *("gtx-1080-ti", "titan-v", "p100-sxm2-16gb", "v100-sxm2-power9", "rtx-5070-ti"),
        *("jetson-agx-xavier", "jetson-agx-orin-64gb", "jetson-orin-nx-16gb", "jetson-orin-nano-8gb", "jetson-thor"),
    )
    assert set(wanted) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_is_every_machine_complete_and_plausible(profiles, name):
    p = profiles[name]
    assert p.name == name
    numbers = dict(catalogue.quantities(p))
    assert len(numbers) >= 40
    assert {q.source for q in numbers.values()} - RULES == set(p.sources), "a source is used by a number, or it goes"
    assert p.memory.bandwidth.basis != "measured"
    for rate in (p.memory.read, p.memory.write, p.memory.copy, p.memory.copy_engine):
        assert 0.3 * p.memory.bandwidth.value < rate.value <= p.memory.bandwidth.value
    for rate in (p.link.h2d, p.link.d2h):
        assert rate.value <= p.link.nominal.value
    assert p.link.both.value <= p.link.h2d.value + p.link.d2h.value
    assert p.link.latency_queued.value < p.link.latency_synchronised.value
    assert p.memory.unified == name.startswith("jetson")


@pytest.mark.parametrize("name", NAMES)
def test_does_every_file_name_its_schema_and_keep_to_the_public(name):
    text = find.find("profile", name).read_text()
    assert text.startswith("# yaml-language-server: $schema=../gpusim/cli/schema/profile.schema.json\n")
    assert not re.search(r"index id|/home/|/tmp/", text)


def rows():
    with ROWS.open(newline="") as file:
        found = {}
        for row in csv.DictReader(file):
            found.setdefault((row["profile"], row["path"]), []).append(row)
    return found


def expected(quantity: Quantity, cited: list[dict[str, str]]) -> tuple[float, float]:
    """The lowest and highest value, in base units, that the cited rows allow."""
    scale = {"GB/s": 1e9, "us": 1e3, "TFLOP/s": 1e12}
    values = [float(row["value"]) * scale[row["unit"]] for row in cited]
    how = cited[0]["how"]
    if how == "value":
        return values[0], values[0]
    if how == "twice":  # a copy that was counted once
        return 2 * values[0], 2 * values[0]
    if how == "sum":  # both directions
        return sum(values), sum(values)
    if how == "rounded":
        return 0.9995 * values[0], 1.0005 * values[0]
    if how == "ratio":
        return values[0] / values[1] - 0.0005, values[0] / values[1] + 0.0005
    if how == "us_per_kernel":
        period = float(cited[0]["param"].split("us_per_kernel=")[1]) * 1e3
        return period, period
    assert how == "less_bytes"  # time of a small copy less its bytes at the link's full rate
    sizes = [int(row["size_bytes"]) for row in cited]
    rests = [size / (rate / 1e9) - size / 12.35 for size, rate in zip(sizes, values, strict=True)]
    return min(rests) - 1e3, max(rests)  # the rows print few digits: 0.06 GB/s


@pytest.mark.oracle
def test_is_every_measured_number_the_one_in_the_cited_row(profiles):
    cited = rows()
    used, fitted = set(), set()
    for name, profile in profiles.items():
        for path, quantity in catalogue.quantities(profile):
            if quantity.source.startswith(FITTED) and not path.startswith("paging."):  # these are test_uvm_measured's
                fitted.add((name, path))
            elif quantity.basis == "measured" and path not in DEVICE_LOGS and not path.startswith("paging."):
                key = (name, path) if (name, path) in cited else ("*", path)
                low, high = expected(quantity, cited[key])
                assert low * (1 - 1e-9) <= quantity.value <= high * (1 + 1e-9), (name, path)
                used.add(key)
    assert used == set(cited) - fitted, "every row is cited, but where many were fitted"
    assert len(used) > 60 and len(fitted) > 20


@pytest.mark.slow
def test_is_every_fitted_number_what_its_rows_give_again(profiles):
    from gpusim.calibrate.fit.fitting import fit
    from gpusim.calibrate.rows import read
    from gpusim.show.calibration_tables import DATA

    profile = profiles["a100-sxm4-80gb"]
    found = {one.path: one.value for one in fit(
        [r for r in read(DATA / "hardware_measured.csv") if r.gpu.lower() == profile.name], profile
    ).estimates if hasattr(one, "value")}  # fmt: skip
    written = {path: q.value for path, q in catalogue.quantities(profile) if q.source.startswith(FITTED)}
    assert len(written) == 6 and {path: found[path] for path in written} == pytest.approx(written, rel=1e-3)


@pytest.mark.hand_worked
def test_can_a_number_be_followed_by_hand(profiles):
    """Read off the CSV by eye: gpu-benches a100_80.txt, nvbandwidth on H100, RTX 5090, the A10 under nsys."""
    a100 = profiles["a100-sxm4-80gb"]
    assert (a100.memory.read.value, a100.memory.write.value, a100.memory.copy.value) == (1776e9, 1894e9, 1725.2e9)
    assert a100.link.h2d.value == 25.7e9
    assert a100.memory.capacity.value == int(79.25 * 2**30)
    assert profiles["h100-sxm-80gb"].link.d2h.value == 55.2e9
    assert profiles["rtx-5090"].link.both.value == pytest.approx(44.3294e9 + 44.1853e9, rel=0.02)  # the median of four
    assert profiles["rtx-5090"].memory.copy_engine.value == pytest.approx(2 * 760.777e9, rel=1e-3)
    assert profiles["a10"].allocation.malloc.value == 135_973.0
    assert profiles["b300-sxm"].link.latency_synchronised.value == 3_600.0


@pytest.mark.oracle
def test_are_capacities_of_integrated_memory_what_the_driver_reports(profiles):
    assert profiles["jetson-agx-orin-64gb"].memory.capacity.value == 62841 * 2**20
    assert profiles["jetson-orin-nano-8gb"].memory.capacity.value == 7621 * 2**20


def test_how_is_a_machine_described(profiles):
    table = {row.path: row for row in catalogue.describe(profiles["a100-sxm4-80gb"])}
    row = table["memory.copy_engine"]
    assert (row.value, row.basis, row.low, row.high) == ("1.53638 TB/s", "measured", "1.52142 TB/s", "1.59765 TB/s")
    assert "copy engine" in row.meaning
    assert table["gpu.peak.fp16"].value == "312 TFLOP/s"
    assert table["gpu.peak.fp16"].meaning == table["gpu.peak.fp32"].meaning != ""
    shares = catalogue.bases(profiles["a100-sxm4-80gb"])
    assert sum(shares.values()) == pytest.approx(1)
    assert catalogue.measured_share(profiles["a100-sxm4-80gb"]) == shares["measured"] == pytest.approx(16 / 55)
    assert catalogue.overview(profiles["t4"])["link"] == "PCIe 3.0 x16"


def test_is_an_unknown_machine_answered_with_the_nearest():
    with pytest.raises(ProfileError, match=r"no profile 'a100' \(did you mean 'a100-pcie-40gb'"):
        catalogue.load("a100")


def test_can_one_number_be_changed_without_touching_the_rest(profiles):
    t4 = profiles["t4"]
    other = changed(changed(t4, "host.capacity", 4 * 2**30), "gpu.peak.fp16", 1e12)
    given = other.host.capacity
    assert (given.value, given.basis, given.source, given.high) == (2**32, "estimated", "given", None)
    assert other.gpu.peak["fp16"].value == 1e12
    assert t4.host.capacity.value == 256 * 2**30
    assert t4.gpu.peak["fp16"].value == 65e12
    before, after = dict(catalogue.quantities(t4)), dict(catalogue.quantities(other))
    assert [path for path in before if before[path] != after[path]] == ["gpu.peak.fp16", "host.capacity"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [("host.capcity", "'capacity'"), ("host", ""), ("link.h2d.value", ""), ("name", ""), ("", ""), ("peer.rate", "")],
)
def test_is_a_path_to_no_number_refused(profiles, path, hint):
    with pytest.raises(ProfileError, match="is not a number of a profile") as caught:
        changed(profiles["t4"], path, 1)
    assert hint in caught.value.hint


def edited(tmp_path, *changes):
    text = find.find("profile", "t4").read_text()
    for old, new in changes:
        assert re.search(old, text), old
        text = re.sub(old, new, text, count=1)
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def problems(path):
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    return [(p.message, p.hint) for p in caught.value.problems], caught.value.problems


def test_is_everything_wrong_with_a_profile_told_at_once(tmp_path):
    path = edited(
        tmp_path,
        (r"  bandwidth:   \{value: 320 GB/s", "  bandwith:    {value: 320 GB/s"),
        (r"value: 233.6 GB/s, basis: measured", "value: 233.6, basis: guessed"),
        (r"(h2d: +\{value:) 12.3 GB/s", r"\1 98.4 Gb/s"),
        (r"(context: \{.*)source: \S+,", r"\1source: contxt-rule,"),
        (r"summary: .*\n", ""),
    )
    told, found = problems(path)
    assert told == [
        ("key 'summary' is missing", ""),
        ("key 'bandwidth' is missing in 'memory'", ""),
        ("unknown key 'bandwith' in 'memory'", "did you mean 'bandwidth'?"),
        ("memory.copy_engine.value: 233.6 has no unit: a rate is wanted", "write its unit, for example '233.6 GB/s'"),
        ("'memory.copy_engine.basis' cannot be 'guessed'", "known: measured, published, estimated"),
        ("context.source: 'contxt-rule' is not in the table 'sources'", "did you mean 'context-rule'?"),
        ("link.h2d.value: '98.4 Gb/s' counts bits; a rate is counted in bytes", "98.4 Gb/s is 12.3 GB/s"),
    ]
    lines = path.read_text().splitlines()
    for problem in found[2:]:
        assert lines[problem.line - 1] == problem.source
    at = found[2]
    assert at.source[at.col - 1 : at.col - 1 + at.width] == "bandwith"
    assert str(found[6]).startswith(f"{path}:{found[6].line}:{found[6].col}: link.h2d.value")


def test_is_a_bare_quantity_answered_with_its_keys(tmp_path):
    told, _ = problems(edited(tmp_path, (r"(latency: +)\{value: 100 us.*\}", r"\1 100 us")))
    message = "'nvme.latency' must be a mapping of keys to values, not '100 us'"
    assert told == [(message, "its keys: value, basis, source, low, high, note")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((r"(read: +\{value:) \d+ GB/s", r"\1 999 GB/s"), "'read' (999 GB/s) is above 'bandwidth' (320 GB/s)"),
        ((r"(h2d: +\{value:) 12.3 GB/s", r"\1 20 GB/s"), "high (13.1 GB/s) is below the value (20 GB/s)"),
        ((r"(both: +\{value:) \S+ GB/s", r"\1 30 GB/s"), "'both' (30 GB/s) is above the sum"),
        ((r"(latency_queued: +\{value:) \S+ us", r"\1 9 us"), "high (3 us) is below the value (9 us)"),
        ((r"(d2h: +\{value: )1,", r"\g<1>0,"), "greater than or equal to 1"),
        ((r"(write: +\{value:) 2.0383\S+ GB/s", r"\1 0 GB/s"), "a rate of 0 would never come to an end"),
        ((r"(context: \{value: )300 MB(.*), low: .*\}", r"\g<1>900 GiB\2}"), "leaves nothing of the memory's capacity"),
    ],
)
def test_is_what_no_machine_can_be_refused(tmp_path, change, message):
    told, _ = problems(edited(tmp_path, change))
    assert len(told) == 1
    assert message in told[0][0]
