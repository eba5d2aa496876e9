"""Many videos mapped, each into a folder of its own: what `longtake batch` does, for programs."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longtake.api.map_request import MapRequest
from longtake.batch.driver import Batch
from longtake.batch.events import BatchSummary
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.gpus import GpuShare, environments, free_bytes, gpu_share
from longtake.batch.local_pool import LocalPool
from longtake.batch.manifest import open_manifest
from longtake.batch.naming import TABLE_NAME
from longtake.batch.open_storage import open_storage
from longtake.batch.pool import Pool
from longtake.batch.ray_pool import RayPool, is_ray
from longtake.batch.row_settings import settings_of
from longtake.batch.sharing import Growth, Sharing
from longtake.errors import InputError, SettingError
from longtake.runtime.execution import AUTO
from longtake.takes.atomic_files import resolved

LOCAL = "local"


def open_batch(
    videos: str | Path | Iterable[str | Path | Mapping[str, object]],
    out: str | Path,
    *,
    jobs: int | None = None,
    on: str = LOCAL,
    threads: int = 1,
    per_gpu: int | str = AUTO,
    spans: int = 1,
    tries: int = 3,
    scratch: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Batch:
    """A batch that is about to begin; iterate to do it."""
    numbers = {"jobs": 1 if jobs is None else jobs, "threads": threads, "spans": spans, "tries": tries}
    for name, number in numbers.items():
        _require_positive(name, number)
    each = _fixed_per_gpu(per_gpu)
    if on != LOCAL and not is_ray(on):
        raise SettingError(f"Expected on as {LOCAL}, ray or ray://HOST:PORT, but got '{on}'.")
    request = MapRequest(**settings_of(settings or {}))
    request.planned()  # what is wrong for all is told once, before any video is looked at
    storage = open_storage(out, None if scratch is None else Path(scratch))
    if storage.is_result():
        raise InputError(
            f"Expected a place for the results of many videos, a folder each, but {storage.address} is the result of a "
            "single one; name another."
        )
    apart_from = storage.path if isinstance(storage, FolderStorage) else None
    if (
        apart_from is not None
        and isinstance(videos, str | Path)
        and os.path.exists(videos)  # noqa: PTH110 - of any text
        and resolved(Path(videos)) == resolved(apart_from / TABLE_NAME)
    ):
        raise InputError(
            f"The table of results would replace the list {apart_from / TABLE_NAME}; give the list another name, or "
            "results another place."
        )
    manifest = open_manifest(videos, settings, spans=spans, apart_from=apart_from)
    most = len(manifest) * spans
    pool: Pool
    if is_ray(on):
        pool = RayPool(on, jobs, threads=threads, gpus=gpu_share(request, each, of_cluster=True))
    else:
        share = gpu_share(request, each)
        pool = _on_processors(jobs, threads, most) if share is None else _on_gpus(jobs, threads, most, share)
    return Batch(manifest, storage, pool, tries=tries)


def _on_processors(jobs: int | None, threads: int, most: int) -> LocalPool:
    usual = max(1, (os.cpu_count() or 1) // threads)
    return LocalPool(min(jobs or usual, most), threads=threads)


def _on_gpus(jobs: int | None, threads: int, most: int, share: GpuShare) -> LocalPool:
    """A worker for each GPU, or so many as were asked for; where nothing was said, further ones while they pay."""
    gpus = environments()
    if share.per_gpu is not None:
        return LocalPool(min(jobs or share.per_gpu * len(gpus), most), threads=threads, environments=gpus)
    sharing = Sharing(most=share.most(min(free_bytes(gpu) or 0 for gpu in gpus)))
    num_workers = min(jobs or sharing.most * len(gpus), most)
    return LocalPool(num_workers, threads=threads, environments=gpus, growth=Growth(sharing, len(gpus)))


def map_many(
    videos: str | Path | Iterable[str | Path | Mapping[str, object]],
    out: str | Path = "out/batch",
    *,
    jobs: int | None = None,
    on: str = LOCAL,
    threads: int = 1,
    per_gpu: int | str = AUTO,
    spans: int = 1,
    tries: int = 3,
    scratch: str | Path | None = None,
    **settings: Any,
) -> BatchSummary:
    """Map many videos, each into a folder of its own below `out`; run again, it does what is missing.

        summary = longtake.map_many("videos", out="mapped", jobs=4, fps=5)
        summary = longtake.map_many([{"source": "a.mp4", "fps": 2}, {"source": "b.mp4"}], out="mapped")
        print(summary.done, summary.failed, summary.table)

    `videos` is a folder or tree of them, a glob, a list as .txt, .csv or .parquet, or an iterable of sources or rows.
    Other keywords are those of `longtake.map`, for all rows that say nothing else. Videos that fail are set aside: the
    table has why. `on="ray"` works on a Ray cluster of this machine, `on="ray://HOST:PORT"` on a running one. Workers
    share a GPU where `per_gpu` says how many or, by default, while a further one fits and pays.
    """
    batch = open_batch(
        videos,
        out,
        jobs=jobs,
        on=on,
        threads=threads,
        per_gpu=per_gpu,
        spans=spans,
        tries=tries,
        scratch=scratch,
        settings=settings,
    )
    for _ in batch:
        pass
    assert batch.summary is not None
    return batch.summary


def _fixed_per_gpu(per_gpu: int | str) -> int | None:
    """None for `auto`."""
    if per_gpu == AUTO:
        return None
    try:
        number = int(per_gpu)
    except ValueError:
        raise SettingError(f"Expected per_gpu as a whole number or {AUTO}, but got '{per_gpu}'.") from None
    _require_positive("per_gpu", number)
    return number


def _require_positive(name: str, number: int) -> None:
    if number < 1:
        raise SettingError(f"Expected {name} as a whole number from 1, but got {number}.")
