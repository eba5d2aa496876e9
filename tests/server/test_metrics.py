"""The figures of a server as Prometheus reads them."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from served import QUESTION, Start, ask, open_session, push

from longtake.video.frame import VideoFrame

parser = pytest.importorskip("prometheus_client.parser")
pytestmark = pytest.mark.extra

LABELS = {"state", "status", "kind", "type", "part", "le"}
KINDS = {
    "longtake_sessions": "gauge",
    "longtake_frames": "counter",
    "longtake_dropped_frames": "counter",
    "longtake_frame_seconds": "histogram",
    "longtake_questions": "counter",
    "longtake_first_token_seconds": "histogram",
    "longtake_events": "counter",
    "longtake_webhooks": "counter",
    "longtake_work_waiting": "gauge",
    "longtake_memory_bytes": "gauge",
    "longtake_memory_budget_bytes": "gauge",
    "longtake_load_ratio": "gauge",
    "longtake_disk_bytes": "gauge",
}


def scraped(text: str) -> dict[str, Any]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def value(families: dict[str, Any], family: str, name: str, **labels: str) -> float:
    (found,) = [one.value for one in families[family].samples if one.name == name and one.labels == labels]
    return float(found)


def test_a_scrape_parses_and_names_no_session_and_no_secret(start: Start, frames: Sequence[VideoFrame]) -> None:
    from longtake.server.metrics import metrics_text

    engine = start()
    session = open_session(engine)
    push(session, frames[:6])
    ask(session)
    text = metrics_text(engine).decode()
    families = scraped(text)
    assert {name: family.type for name, family in families.items()} == KINDS
    labels = [label for family in families.values() for sample in family.samples for label in sample.labels.items()]
    assert {name for name, _ in labels} == LABELS
    assert all(re.fullmatch(r"[a-z_.]+|[0-9.]+|\+Inf", label) for _, label in labels)
    assert session.id not in text
    assert QUESTION not in text
    assert value(families, "longtake_sessions", "longtake_sessions", state="open") == 1
    assert value(families, "longtake_frames", "longtake_frames_total", status="taken") == 6
    assert value(families, "longtake_dropped_frames", "longtake_dropped_frames_total") == 0
    assert value(families, "longtake_questions", "longtake_questions_total", status="answered") == 1
    assert value(families, "longtake_first_token_seconds", "longtake_first_token_seconds_count") == 1
    for part in ("wait", "step", "overhead"):
        name = "longtake_frame_seconds"
        assert value(families, name, f"{name}_count", part=part) == 6
        assert value(families, name, f"{name}_bucket", part=part, le="+Inf") == 6
        assert value(families, name, f"{name}_sum", part=part) > 0
    assert 0 < value(families, "longtake_memory_bytes", "longtake_memory_bytes") <= engine.admission.budget_bytes
