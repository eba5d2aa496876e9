"""Workers as actors of a Ray cluster: an existing one, or a fresh one of this machine alone.

An actor takes a job at a time; what is asked meanwhile, how far it is or to stop, a second thread of it answers. One
that dies, with its machine or without, is replaced wherever the cluster has room; only one that answers has a job.
"""

import platform
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from longtake import __version__
from longtake.batch.gpus import GpuShare
from longtake.batch.job import Cause, Failed, Finished, Job, Stopped, Told, Watched
from longtake.batch.pool import Pool
from longtake.batch.ray_actor import Actor, free_gpu_bytes, python_version
from longtake.batch.worker import worker_environment
from longtake.errors import InputError, SettingError
from longtake.extras import import_from_extra
from longtake.types import counted

FRESH = "ray"
"""The name of a cluster that is started for the batch, and ends with it."""
_SCHEME, _RUNNING = "ray://", "auto"
_REACHED_S = 10.0
_PATIENCE_S = 120.0
"""With a cluster that has no room for any worker."""
_ASKED_EVERY_S = 1.0
_MOST_STILLBORN = 3
"""Actors in a row, for each worker, that died before they had said anything: then the next would too."""
_OTHER_VERSIONS = re.compile(r"Version mismatch:.*?Ray: (\S+)\s+Python: (\S+)", re.DOTALL)
"""As Ray says which the cluster has."""
_GPU_PARTS = 10_000
"""That Ray counts in one GPU."""


def is_ray(on: str) -> bool:
    return on == FRESH or on.startswith(_SCHEME)


class RayPool(Pool):
    """Actors that are placed by Ray."""

    def __init__(
        self, on: str, num_workers: int | None = None, *, threads: int = 1, gpus: GpuShare | None = None
    ) -> None:
        """`num_workers` None takes as many as the cluster has processors, or room on its GPUs where each needs one."""
        self._ray = import_from_extra("ray", "ray", "--on ray")
        self._is_fresh = on == FRESH
        self._connect(on)
        self._threads = threads
        self._per_gpu = 0 if gpus is None else gpus.most_unmeasured(self._free_gpu_bytes(gpus))
        self._members = [self._new_member() for _ in range(num_workers or self._most_workers())]
        self._num_stillborn = 0
        self._ready_s = self._asked_s = time.monotonic()

    @property
    def num_workers(self) -> int:
        return len(self._members)

    @property
    def num_free(self) -> int:
        return sum(member.is_ready and member.job is None for member in self._members)

    @property
    def process_ids(self) -> list[int]:
        """Of workers that are there, each on its machine."""
        return [member.process_id for member in self._members if member.is_ready]

    def give(self, job: Job) -> None:
        member = next(member for member in self._members if member.is_ready and member.job is None)
        member.job, member.doing = job, member.actor.do.remote(job)

    def told(self, timeout_s: float) -> Sequence[Told]:
        self._ask_how_far()
        waiting = {ref: member for member in self._members for ref in member.waiting()}
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        reports: list[Told] = []
        for ref in ready:
            reports.extend(self._understood(waiting[ref], ref))
        self._require_room()
        return reports

    def stop(self) -> None:
        for member in self._members:
            member.actor.stop.remote()

    def close(self) -> None:
        for member in self._members:
            with suppress(Exception):
                self._ray.kill(member.actor)
        self._members = []
        self._ray.shutdown()

    def _connect(self, on: str) -> None:
        address = None if self._is_fresh else on.removeprefix(_SCHEME)
        if address is not None:
            _require_reachable(on, address)
        fresh = {"include_dashboard": True, "dashboard_host": "127.0.0.1"} if self._is_fresh else {}
        try:
            if self._ray.is_initialized():
                raise SettingError("This program is connected to a Ray cluster already; end that with ray.shutdown().")
            self._ray.init(
                address="local" if address is None else address,
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=True,
                **fresh,
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            self._ray.shutdown()
            if address == _RUNNING and isinstance(error, ConnectionError):
                raise InputError(
                    f"Expected a Ray cluster on this machine for '{on}', but none runs; begin one with ray start "
                    f"--head, name another as ray://HOST:6379, or use one for this batch alone: {FRESH}."
                ) from error
            raise InputError(_why_unusable(on, str(error), self._ray.__version__)) from error

    def _most_workers(self) -> int:
        resources = self._ray.cluster_resources()
        if self._per_gpu:
            return max(1, int(resources.get("GPU", 0) * self._per_gpu))
        return max(1, int(resources.get("CPU", 1)) // self._threads)

    @property
    def _gpus_each(self) -> float:
        """The part of a GPU that each claims; never so much that the last would have no room."""
        return _GPU_PARTS // self._per_gpu / _GPU_PARTS if self._per_gpu else 0.0

    def _free_gpu_bytes(self, gpus: GpuShare) -> int | None:
        """Of one GPU of the cluster; None where nobody needs to know, or none is free for the question."""
        if gpus.per_gpu is not None or gpus.worker_bytes is None:
            return None
        asking = self._ray.remote(free_gpu_bytes).options(num_gpus=1, num_cpus=0).remote()
        try:
            free_bytes: int = self._ray.get(asking, timeout=_PATIENCE_S)
        except self._ray.exceptions.RayError:
            self._ray.cancel(asking)
            return None
        return free_bytes

    def _new_member(self) -> "_Member":
        made = self._ray.remote(Actor).options(
            num_cpus=self._threads,
            num_gpus=self._gpus_each,
            max_concurrency=2,
            runtime_env={"env_vars": worker_environment(self._threads)},
        )
        actor = made.remote(self._threads, str(Path.cwd()))
        return _Member(actor, actor.ready.remote())

    def _ask_how_far(self) -> None:
        if time.monotonic() - self._asked_s < _ASKED_EVERY_S:
            return
        self._asked_s = time.monotonic()
        for member in self._members:
            if member.doing is not None and member.asked is None:
                member.asked = member.actor.watched.remote()

    def _understood(self, member: "_Member", ref: Any) -> list[Told]:
        try:
            value = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return self._replaced(member, error)
        if ref == member.greeting:
            *versions, member.process_id = value
            self._require_same(tuple(versions))
            member.greeting, self._num_stillborn = None, 0
            return []
        if ref == member.asked:
            member.asked = None
            job = member.job  # the answer may be of the one before
            return [value] if isinstance(value, Watched) and job is not None and value.name == job.name else []
        assert isinstance(value, Finished | Stopped | Failed)
        member.job = member.doing = None
        return [value]

    def _replaced(self, member: "_Member", error: Exception) -> list[Told]:
        """Another worker in place of one that died; what it had in hand is told as failed."""
        if member not in self._members:
            return []
        job = member.job
        with suppress(Exception):
            self._ray.kill(member.actor)
        self._members[self._members.index(member)] = self._new_member()
        if not member.is_ready:
            self._require_live(error)
        if job is None:
            return []
        what = str(error).split("\n", 1)[0]
        return [
            Failed(name=job.name, problem=f"Its worker died ({type(error).__name__}: {what:.200}).", cause=Cause.LOST)
        ]

    def _require_live(self, error: Exception) -> None:
        self._num_stillborn += 1
        if self._num_stillborn >= _MOST_STILLBORN * len(self._members):
            what = str(error).strip().rpartition("\n")[2]
            raise InputError(
                f"Workers cannot be started on the Ray cluster: {counted(self._num_stillborn, 'actor')} in a row ended "
                f"at once ({what:.200}); install longtake {__version__} with Python {python_version()} on all machines."
            ) from error

    def _require_same(self, versions: tuple[str, ...]) -> None:
        own = __version__, python_version()
        if versions != own:
            raise InputError(
                f"Expected longtake {own[0]} with Python {own[1]} on the cluster, as here, but a worker has longtake "
                f"{versions[0]} with Python {versions[1]}; install the same on all machines."
            )

    def _require_room(self) -> None:
        """Some worker must be there, or come soon."""
        now_s = time.monotonic()
        if any(member.is_ready for member in self._members):
            self._ready_s = now_s
        elif now_s - self._ready_s > _PATIENCE_S:
            raise InputError(
                f"The Ray cluster had no room for a worker with {self._threads} processors and {self._gpus_each:g} "
                f"GPUs in {_PATIENCE_S:.0f} s; wait for other work to end, or add machines."
            )


class _Member:
    """One actor, and what is waited for from it."""

    def __init__(self, actor: Any, greeting: Any) -> None:
        self.actor, self.greeting = actor, greeting
        self.job: Job | None = None
        self.doing: Any = None
        self.asked: Any = None
        self.process_id = 0

    @property
    def is_ready(self) -> bool:
        return self.greeting is None

    def waiting(self) -> list[Any]:
        return [ref for ref in (self.greeting, self.doing, self.asked) if ref is not None]


def _why_unusable(on: str, said: str, own_ray: str) -> str:
    """A sentence of what Ray said."""
    if found := _OTHER_VERSIONS.search(said):
        return (
            f"Expected Ray {own_ray} with Python {platform.python_version()} on the cluster '{on}', as here, but it "
            f"has Ray {found[1]} with Python {found[2]}; install the same on all machines."
        )
    return (
        f"The Ray cluster '{on}' cannot be used ({' '.join(said.split()):.300}); check its address, whose port is the "
        "head's own (6379), and, if it asks for a token, set RAY_AUTH_MODE=token."
    )


def _require_reachable(on: str, address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == _RUNNING:
        return
    if not host or not port.isdecimal():
        raise SettingError(f"Expected a Ray cluster as ray://HOST:6379, or ray://auto, but got '{on}'.")
    try:
        socket.create_connection((host, int(port)), timeout=_REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Expected a Ray cluster at '{on}', but nobody answers there ({error}); name its head as "
            "ray://HOST:6379, or ray://auto for the one that runs on this machine."
        ) from error
