"""What a server tells those who watch over it, in the format of Prometheus."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from longtake.pipeline.scheduler import WorkKind
from longtake.server.engine import Engine
from longtake.server.machine import SessionState
from longtake.server.observed import Durations

_FRAME_ENDS = ("taken", "dropped", "unreadable", "refused")
_ANSWER_ENDS = ("answered", "cancelled", "refused")
_WEBHOOK_ENDS = ("sent", "failed", "dropped")


class EngineCollector(Collector):
    """Reads an engine when it is asked; no name of a session is told."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        yield from self._state()
        yield from self._counts()
        figures = self._engine.observed.read()
        yield _histogram("longtake_frame_seconds", "What frames that were taken took.", figures.frame_s, "part")
        first = HistogramMetricFamily("longtake_first_token_seconds", "From a question to its first word.")
        first.add_metric([], *_buckets(figures.first_token_s))
        yield first

    def _state(self) -> Iterator[Metric]:
        engine = self._engine
        found = Counter(session.state for session in engine.sessions)
        states = {state.value: found[state] for state in SessionState}
        kinds = {kind.value: engine.scheduler.num_waiting(kind) for kind in WorkKind}
        yield _labelled(GaugeMetricFamily, "longtake_sessions", "Sessions by where they are.", "state", states)
        yield _labelled(GaugeMetricFamily, "longtake_work_waiting", "Frames and questions that wait.", "kind", kinds)
        admission = engine.admission
        for name, about, value in (
            ("longtake_memory_bytes", "Taken by sessions.", admission.num_bytes),
            ("longtake_memory_budget_bytes", "That sessions may take.", admission.budget_bytes),
            ("longtake_load_ratio", "Time promised to sessions.", admission.load),
            ("longtake_disk_bytes", "Taken by saved sessions.", engine.disk_bytes),
        ):
            yield GaugeMetricFamily(name, about, value)

    def _counts(self) -> Iterator[Metric]:
        figures = self._engine.observed.read()
        frames = {status: figures.frames[status] for status in _FRAME_ENDS}
        questions = {status: figures.questions[status] for status in _ANSWER_ENDS}
        yield _labelled(CounterMetricFamily, "longtake_frames", "Frames by how they ended.", "status", frames)
        yield _labelled(CounterMetricFamily, "longtake_questions", "Questions by how they ended.", "status", questions)
        webhooks = {status: figures.webhooks[status] for status in _WEBHOOK_ENDS}
        yield _labelled(CounterMetricFamily, "longtake_webhooks", "Findings by how they ended.", "status", webhooks)
        yield _labelled(CounterMetricFamily, "longtake_events", "Events of all sessions.", "type", figures.events)
        yield CounterMetricFamily(
            "longtake_dropped_frames", "Frames that newer ones took the place of.", frames["dropped"]
        )


def metrics_text(engine: Engine) -> bytes:
    """All of it."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    return generate_latest(registry)


def _labelled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    about: str,
    label: str,
    values: Mapping[str, int],
) -> Metric:
    family = kind(name, about, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _histogram(name: str, about: str, durations: Mapping[str, Durations], label: str) -> Metric:
    family = HistogramMetricFamily(name, about, labels=[label])
    for value, one in durations.items():
        family.add_metric([value], *_buckets(one))
    return family


def _buckets(durations: Durations) -> tuple[list[tuple[str, float]], float]:
    """How many took at most each bound, and the sum."""
    bounds = [*(str(bound) for bound in durations.bounds_s), "+Inf"]
    return list(zip(bounds, map(float, accumulate(durations.counts)), strict=True)), durations.total_s
