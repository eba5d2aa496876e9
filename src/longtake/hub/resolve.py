"""From what a user calls the weights to a file: a path, a bundled model, a preset, or a place on the Hugging Face hub.

Each may carry the model's name in front, `streamvggt:weights.pth`, where a file alone cannot tell.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from longtake.errors import CheckpointError
from longtake.extras import import_from_extra
from longtake.hub.bundled import BUNDLED, RANDOM_NAMES, bundled_file
from longtake.hub.presets import PRESETS, Named, alone_in, parse_name
from longtake.weights.files import INDEX, SUFFIXES, existing, is_index, read_index

_log = logging.getLogger(__name__)
_NAME = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_PLACE = re.compile(rf"(?!.*(?:--|\.\.))(?P<repo>{_NAME}/{_NAME})(?:/(?P<file>[\w][\w./-]*))?")


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on the hub, newest or of one commit, and the files to look for: the first one found is taken."""

    repo: str
    files: tuple[str, ...]
    revision: str | None = None
    licence: str = "not known to longtake; see the repository's page"


def resolve(name_or_path: Path | str) -> Path:
    """The weights' file on this machine: a path that exists, else the package's, the hub's cache's, or a download."""
    if (found := find(name_or_path)) is not None:
        return found
    named = parse_name(name_or_path)
    return _download(_hub(named.weights), _place_of(named))


def find(name_or_path: Path | str) -> Path | None:
    """The same without a download; none if the weights are known but not on this machine."""
    named = parse_name(name_or_path)
    if (path := existing(named.weights)) is not None:
        return path
    if named.revision is None and (bundled := bundled_file(str(named.weights))) is not None:
        return bundled
    place = _place_of(named)
    hub = _hub(named.weights)
    cached = (hub.try_to_load_from_cache(place.repo, file, revision=place.revision) for file in place.files)
    paths = (Path(path) for path in cached if isinstance(path, str))  # the cache also remembers what does not exist
    return next((path for path in paths if _is_complete(path)), None)


def _place_of(named: Named) -> Place:
    name = str(named.weights)
    for preset in PRESETS:
        if name == preset.name or preset == alone_in(name):
            return Place(preset.repo, (preset.file,), named.revision, preset.licence)
    found = _PLACE.fullmatch(name)
    if found and found["file"]:
        return Place(found["repo"], (found["file"],), named.revision)
    if found and not name.endswith(SUFFIXES):  # one folder and a file: a path that does not exist
        return Place(found["repo"], ("model.safetensors", INDEX), named.revision)
    if named.revision is not None and bundled_file(name) is not None:
        raise CheckpointError(
            f"Expected a model of the Hugging Face hub before '@{named.revision}', but {name} comes with longtake, in "
            f"one version; leave out '@{named.revision}'."
        )
    bundled = [one.name for one in BUNDLED if not one.is_language]
    names = ", ".join([*bundled, *(preset.name for preset in PRESETS), *RANDOM_NAMES])
    raise CheckpointError(
        f"Expected weights at {name}, but no file or folder is there; "
        f"give a path, one of the names {names}, or organisation/repository/file on the Hugging Face hub."
    )


def _hub(name: Path | str) -> ModuleType:
    return import_from_extra("huggingface_hub", "hub", f"Finding {name} by name")


def _is_complete(path: Path) -> bool:
    return not is_index(path) or all((path.parent / shard).exists() for shard in set(read_index(path).values()))


def _download(hub: ModuleType, place: Place) -> Path:
    for file in place.files:
        path = _fetch(hub, place, file, place.revision)
        if path is not None and is_index(path):
            for shard in sorted(set(read_index(path).values())):
                _fetch(hub, place, shard, revision=path.parent.name)  # the cache has a folder for each commit
        if path is not None:
            return path
    raise CheckpointError(
        f"The repository {place.repo} on the Hugging Face hub has no {' and no '.join(place.files)}; "
        f"name the file you want, as {place.repo}/file."
    )


def _fetch(hub: ModuleType, place: Place, file: str, revision: str | None) -> Path | None:
    """One file of a repository, newest or of one commit, in the cache from now on; none if there is no such file."""
    errors = import_from_extra("huggingface_hub.errors", "hub", f"Fetching {file}")
    # the base of its HTTP errors stands for whichever client this version uses; its transfers raise RuntimeError
    failures = (OSError, RuntimeError, *errors.HfHubHTTPError.__bases__)
    try:
        # asks once; the download alone asks for 20 s where there is no network
        hub.get_hf_file_metadata(hub.hf_hub_url(place.repo, file, revision=revision))
        _log.warning("Fetching %s from %s; licence of the weights: %s.", file, place.repo, place.licence)
        return Path(hub.hf_hub_download(place.repo, file, revision=revision))
    except errors.GatedRepoError as error:
        raise _out_of_reach(hub, place, file, "its authors ask you to log in and accept their terms first") from error
    except errors.RepositoryNotFoundError as error:
        raise _out_of_reach(hub, place, file, "there is no such repository, or it is private") from error
    except errors.RevisionNotFoundError as error:
        raise _out_of_reach(hub, place, file, f"there is no revision {revision}") from error
    except errors.LocalEntryNotFoundError as error:
        raise _out_of_reach(hub, place, file, "the connection was lost") from error
    except errors.EntryNotFoundError:
        return None
    except failures as error:
        reason = str(error) or type(error).__name__
        raise _out_of_reach(hub, place, file, reason.splitlines()[0].split(". ")[0]) from error


def _out_of_reach(hub: ModuleType, place: Place, file: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{file} is neither in the cache {hub.constants.HF_HUB_CACHE} nor could it be downloaded from {place.repo} on "
        f"the Hugging Face hub ({why}); fetch it by hand from https://huggingface.co/{place.repo} and pass its path."
    )
