"""Are the files of the set-up what Prometheus, Grafana and compose take, and do they name only metrics that there are?"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from prometheus_tools import needs_promtool, plain, promtool
from promql_parser import parse

from gpusim.base.errors import ResultError
from gpusim.results.monitoring.alerts import ALERTS
from gpusim.results.monitoring.cluster_alerts import CLUSTER_ALERTS
from gpusim.results.monitoring.cluster_families import CLUSTER_FAMILIES
from gpusim.results.monitoring.families import FAMILIES
from gpusim.results.monitoring.family import IDENTITY
from gpusim.show.monitoring import setup
from gpusim.show.monitoring.dashboard import dashboard
from gpusim.show.monitoring.queries import ALERTS_QUERY, CLOCK, VARIABLES, PanelQuery, panels
from gpusim.show.monitoring.rule_tests import CASES
from gpusim.show.monitoring.rules import RULES, TESTS, rules

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
QUERIES = [*panels(), PanelQuery("alerts", "", ALERTS_QUERY, "", "", "")]


def mistakes(schema: str, value: Any, part: str = "") -> list[str]:
    told = json.loads((SCHEMAS / f"{schema}.json").read_text("utf-8"))
    told |= {"$ref": f"#/definitions/{part}"} if part else {}
    return [f"{'.'.join(map(str, e.path))}: {e.message}" for e in Draft7Validator(told).iter_errors(value)]


def selectors(promql: str) -> list[tuple[str, set[str]]]:
    """(metric, labels that it is chosen by) of a query."""
    found = re.findall(r"\b((?:gpusim_|ALERTS)\w*)(?:\{([^}]*)\})?", promql)
    return [(name, set(re.findall(r"(\w+)\s*=~?", chosen))) for name, chosen in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("setup")
    assert {path.relative_to(out).as_posix() for path in setup.write(out)} == set(setup.files())
    return out


def test_the_dashboard_is_of_grafanas_schema() -> None:
    board = json.loads(json.dumps(dashboard()))
    assert not mistakes("grafana_dashboard", board)
    shown = [panel for panel in board["panels"] if panel["type"] != "row"]
    for panel in shown:
        assert not mistakes("grafana_timeseries", panel["options"], "Options")
        assert not mistakes("grafana_timeseries", panel["fieldConfig"]["defaults"]["custom"], "FieldConfig")
        assert not [m for target in panel["targets"] for m in mistakes("grafana_prometheus", target)]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_schemas_find_mistakes() -> None:
    board = copy.deepcopy(dashboard())
    board["panels"][1]["titel"] = "x"
    assert mistakes("grafana_dashboard", board)
    assert mistakes("compose", {**setup.compose(), "servces": {}})


def test_every_metric_has_a_panel_and_every_panel_a_place_of_its_own() -> None:
    asked = {name for panel in panels() for name, _ in selectors(panel.promql)}
    assert asked == {family.sample for family in FAMILIES.values()}
    cells = [
        (x, y)
        for panel in dashboard()["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


@pytest.mark.parametrize("query", [q.promql for q in QUERIES] + [alert.promql for alert in (*ALERTS, *CLUSTER_ALERTS)])
def test_queries_parse_and_choose_by_labels_that_there_are(query: str) -> None:
    parse(plain(query))
    by_sample = {family.sample: family for family in (*FAMILIES.values(), *CLUSTER_FAMILIES.values())}
    for name, labels in selectors(query):
        known = {"alertname", "alertstate", *IDENTITY} if name == "ALERTS" else {*IDENTITY, *by_sample[name].labels}
        assert labels <= known, (name, labels - known)


def test_a_query_that_is_none_does_not_parse() -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse("rate(gpusim_swaps_total[30s]")


def test_variables_are_labels_that_every_sample_has() -> None:
    assert set(VARIABLES) <= set(IDENTITY)
    for variable in dashboard()["templating"]["list"][1:]:
        label = re.fullmatch(rf"label_values\({FAMILIES[CLOCK].sample}(?:\{{.*\}})?, (\w+)\)", variable["query"])
        assert label and label[1] == variable["name"]


def test_every_alert_has_a_rule_and_a_unit_test_of_both_answers() -> None:
    made = [rule["alert"] for group in rules()["groups"] for rule in group["rules"]]
    assert made == [alert.name for alert in (*ALERTS, *CLUSTER_ALERTS)] and set(CASES) == set(made)


def test_the_compose_file_is_of_the_specification(folder: Path) -> None:
    told = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))
    assert not mistakes("compose", told) and len(told["services"]) == 3
    for name, service in told["services"].items():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in told["volumes"] or (folder / source).is_dir(), (name, volume)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    # What one container says of another is where that is.
    scraped = yaml.safe_load((folder / "prometheus/prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]
    assert scraped["targets"] == [f"gpusim:{setup.PORT}"] and f"0.0.0.0:{setup.PORT}" in told["services"]["gpusim"]["command"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="a file is in the way"):
        setup.write(tmp_path / "file")


@needs_promtool
@pytest.mark.slow
@pytest.mark.oracle
def test_promtool_takes_the_rules_their_tests_and_the_configuration(folder: Path) -> None:
    at = folder / "prometheus"
    assert f"{len(ALERTS) + len(CLUSTER_ALERTS)} rules found" in promtool("check", "rules", at / RULES)
    assert "SUCCESS" in promtool("check", "config", at / "prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", at / TESTS)


@needs_promtool
@pytest.mark.slow
@pytest.mark.oracle
def test_promtool_finds_an_alert_that_comes_too_late(folder: Path, tmp_path: Path) -> None:
    late = (folder / "prometheus" / RULES).read_text("utf-8").replace("for: 15s", "for: 59s")
    (tmp_path / RULES).write_text(late)
    (tmp_path / TESTS).write_text((folder / "prometheus" / TESTS).read_text("utf-8"))
    with pytest.raises(AssertionError, match="GpusimThrashing fires"):
        promtool("test", "rules", tmp_path / TESTS)
