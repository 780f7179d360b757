"""The page of a service that kept its log: its answer, its latencies, and its requests, steps and memory over time."""

from __future__ import annotations

from pathlib import Path

from gpusim.show.page.single import write_single_page
from gpusim.show.values.requests_in_time import requests_in_time
from gpusim.show.values.served_memory import capacity_of
from gpusim.studies.serving.answer import ServingAnswer

KEY = "service"  # of the only run


def write_service_page(found: ServingAnswer, answer: str, tables: dict[str, list[dict[str, str]]], folder: Path) -> Path:
    """FOLDER/report.html.

    answer  what it says at the top; tables: rows by title
    """
    activities, left = requests_in_time(found)
    spec = found.service.spec
    question = f"How does {spec.model} serve on {spec.machine}?"
    return write_single_page(
        folder, KEY, question, answer, tables, activities, title="Service", left=left, capacity=capacity_of(found)
    )
