"""The page of a service that kept its log: its answer, its latencies, and its requests, steps and memory over time."""

from __future__ import annotations

from pathlib import Path

from gpusim.show.page.single import write_single_page
from gpusim.show.values.requests_in_time import requests_in_time
from gpusim.studies.serving.answer import ServingAnswer

KEY = "service"  # of the only run


def write_service_page(found: ServingAnswer, answer: str, latencies: list[dict[str, str]], folder: Path) -> Path:
    """FOLDER/report.html.

    answer     what it says at the top; latencies: rows of a table
    """
    rows, left = requests_in_time(found)
    spec = found.service.spec
    question = f"How does {spec.model} serve on {spec.machine}?"
    capacity = sum(
        found.service.topology.profile(gpu).memory.capacity.value for group in found.service.groups for gpu in group
    )
    return write_single_page(folder, KEY, question, answer, latencies, rows, title="Service", left=left, capacity=capacity)
