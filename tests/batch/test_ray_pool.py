"""What a batch asks of Ray and says of it, against a stand-in for Ray; `test_workers` has the real one."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from longtake import __version__
from longtake.api.map_request import MapRequest
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.gpus import GpuShare
from longtake.batch.job import Finished, Job, MapJob, Watched
from longtake.batch.ray_actor import Actor, python_version
from longtake.batch.ray_pool import RayPool
from longtake.errors import InputError, SettingError


class RayDiedError(Exception):
    """As Ray's own errors."""


class StandIn(ModuleType):
    """A Ray cluster with two GPUs, whose answers are there at once."""

    __version__ = "2.60.0"
    exceptions = SimpleNamespace(RayError=RayDiedError)

    def __init__(self, *, refusal: str | None = None, death: str | None = None, free_bytes: int = 0) -> None:
        super().__init__("ray")
        self._refusal, self._death, self._free_bytes = refusal, death, free_bytes
        self.claims: list[float] = []
        self.is_initialized = lambda: False

    def init(self, **_: object) -> None:
        if self._refusal is not None:
            raise RuntimeError(self._refusal)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 64.0, "GPU": 2.0}

    def remote(self, what: object) -> Any:
        def options(**words: Any) -> Any:
            if what is Actor:
                self.claims.append(words["num_gpus"])
            return SimpleNamespace(remote=self._made)

        return SimpleNamespace(options=options)

    def _made(self, *_: object) -> Any:
        return SimpleNamespace(ready=SimpleNamespace(remote=object))

    def wait(self, refs: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return refs[:num_returns], refs[num_returns:]

    def get(self, _: object, timeout: float | None = None) -> int:
        if self._death is not None:
            raise RayDiedError(self._death)
        return self._free_bytes

    def cancel(self, _: object) -> None: ...

    def kill(self, _: object) -> None: ...

    def shutdown(self) -> None: ...


def with_ray(monkeypatch: pytest.MonkeyPatch, **words: Any) -> StandIn:
    ray = StandIn(**words)
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of somebody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"ray://127.0.0.1:{server.getsockname()[1]}"


def test_other_versions_of_ray_or_python_are_one_sentence(monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    said = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.3\n    Python: 3.8.1\n"
        "This process on node 10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.9\n"
    )
    own, its = r"Ray 2\.60\.0 with Python 3\.\S+", r"Ray 2\.9\.3 with Python 3\.8\.1"
    with_ray(monkeypatch, refusal=said)
    expected = rf"Expected {own} on the cluster '{listening}', as here, but it has {its}; install the same on all"
    with pytest.raises(InputError, match=expected) as refused:
        RayPool(listening)
    assert "\n" not in str(refused.value)


def test_the_words_are_those_of_the_real_ray() -> None:
    utils = pytest.importorskip("ray._private.utils")
    with pytest.raises(RuntimeError) as refused:
        utils.check_version_info({"ray_version": "2.9.3", "python_version": "3.8.1"}, "node 10.0.0.1")
    assert "Version mismatch: The cluster was started with:\n    Ray: 2.9.3\n    Python: 3.8.1\n" in str(refused.value)


def test_whatever_else_a_cluster_says_is_one_sentence(monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    with_ray(monkeypatch, refusal="no\nroom")
    with pytest.raises(
        InputError, match=r"cannot be used \(no room\); check its address, .* set RAY_AUTH_MODE=token\."
    ):
        RayPool(listening)


@pytest.mark.parametrize("on", ["ray://", "ray://head", "ray://:6379", "ray://head:first"])
def test_an_address_without_a_host_or_a_port_is_refused(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ray(monkeypatch)
    with pytest.raises(SettingError, match=f"Expected a Ray cluster as ray://HOST:6379, or ray://auto, but got '{on}'"):
        RayPool(on)


def test_where_no_cluster_runs_it_is_told_how_to_begin_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = with_ray(monkeypatch)

    def init(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance. Please specify the one by setting `--address`.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError, match="'ray://auto', but none runs; begin one with ray start --head") as refused:
        RayPool("ray://auto")
    assert "--address" not in str(refused.value)


def test_a_cluster_without_longtake_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ray(monkeypatch, death="The actor died.\nTraceback …\nModuleNotFoundError: No module named 'longtake'\n")
    pool = RayPool("ray", 2)
    expected = r"6 actors in a row ended at once \(ModuleNotFoundError: No module named 'longtake'\); install longtake"
    pool.told(0.0)
    pool.told(0.0)
    with pytest.raises(InputError, match=expected) as refused:
        pool.told(0.0)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("share", "free_bytes", "count", "claim"),
    [
        (GpuShare(per_gpu=1), 0, 2, 1.0),
        (GpuShare(per_gpu=6), 0, 12, 0.1666),
        (GpuShare(per_gpu=None, worker_bytes=10**10), 32 * 10**9, 6, 0.3333),
        (GpuShare(per_gpu=None, worker_bytes=10**10), 10**12, 8, 0.25),
        (GpuShare(per_gpu=None), 10**12, 2, 1.0),
        (None, 10**12, 64, 0.0),
    ],
)
def test_actors_claim_a_part_of_a_gpu_by_what_fits(
    share: GpuShare | None, free_bytes: int, count: int, claim: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = with_ray(monkeypatch, free_bytes=free_bytes)
    assert RayPool("ray", gpus=share).num_workers == count
    assert ray.claims == [claim] * count


def test_a_cluster_whose_gpus_do_not_answer_gets_one_worker_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = with_ray(monkeypatch, death="No GPU was free.")
    assert RayPool("ray", gpus=GpuShare(per_gpu=None, worker_bytes=1)).num_workers == 2
    assert ray.claims == [1.0, 1.0]


class Asked:
    """What an actor was asked, and its answer once there is one."""

    answer: object = None


class Busy(StandIn):
    """One whose actor answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Asked]] = []

    def ask(self, what: str) -> Asked:
        self.asked.append((what, Asked()))
        return self.asked[-1][1]

    def answer(self, what: str, value: object) -> None:
        """The oldest question of that kind."""
        next(asked for kind, asked in self.asked if kind == what and asked.answer is None).answer = value

    def _made(self, *_: object) -> Any:
        words = {
            word: SimpleNamespace(remote=lambda *_, word=word: self.ask(word)) for word in ("ready", "do", "watched")
        }
        return SimpleNamespace(**words)

    def wait(self, refs: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        ready = [ref for ref in refs if ref.answer is not None][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref: Any, timeout: float | None = None) -> Any:
        return ref.answer


def test_how_far_a_job_was_that_has_ended_is_told_of_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("longtake.batch.ray_pool._ASKED_EVERY_S", 0.0)
    ray = Busy()
    monkeypatch.setitem(sys.modules, "ray", ray)
    pool = RayPool("ray", 1)
    ray.answer("ready", (__version__, python_version(), 7))
    assert pool.told(0.0) == []

    def job(name: str) -> Job:
        request = MapRequest(model="tiny")
        return MapJob(name=name, source="world:1", request=request, storage=FolderStorage(tmp_path))

    first = Finished(name="first", num_frames=5, summary={})
    pool.give(job("first"))
    assert pool.told(0.0) == []  # it was asked how far it is
    ray.answer("do", first)
    assert pool.told(0.0) == [first]
    pool.give(job("second"))
    ray.answer("watched", Watched(name="first", num_frames=4))
    assert pool.told(0.0) == []
    pool.told(0.0)  # it is asked again
    ray.answer("watched", Watched(name="second", num_frames=1))
    assert pool.told(0.0) == [Watched(name="second", num_frames=1)]
