"""What a server tells those who watch over it, in the format of Prometheus."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from longtake.pipeline.scheduler import WorkKind
from longtake.server.engine import Engine
from longtake.server.machine import SessionState


class EngineCollector(Collector):
    """Reads an engine when it is asked; no name of a session is told."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        states = Counter(session.state for session in engine.sessions)
        sessions = GaugeMetricFamily("longtake_sessions", "Sessions by where they are.", labels=["state"])
        for state in SessionState:
            sessions.add_metric([state.value], states[state])
        waiting = GaugeMetricFamily("longtake_work_waiting", "Frames and questions that wait.", labels=["kind"])
        for kind in WorkKind:
            waiting.add_metric([kind.value], engine.scheduler.num_waiting(kind))
        served = CounterMetricFamily("longtake_work", "Frames and questions served.", labels=["kind"])
        for kind, number in engine.scheduler.num_served.items():
            served.add_metric([kind.value], number)
        yield from (sessions, waiting, served)
        yield GaugeMetricFamily("longtake_memory_bytes", "Taken by sessions.", engine.admission.num_bytes)
        yield GaugeMetricFamily(
            "longtake_memory_budget_bytes", "That sessions may take.", engine.admission.budget_bytes
        )
        yield GaugeMetricFamily("longtake_load_ratio", "Time promised to sessions.", engine.admission.load)
        yield GaugeMetricFamily("longtake_frame_seconds", "What a frame takes, of late.", engine.scheduler.mean_frame_s)
        yield GaugeMetricFamily("longtake_disk_bytes", "Taken by saved sessions.", engine.disk_bytes)


def metrics_text(engine: Engine) -> bytes:
    """All of it."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    return generate_latest(registry)
