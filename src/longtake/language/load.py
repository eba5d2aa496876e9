"""Language models by name: a folder or a place on the Hugging Face hub to a network that is ready to be asked."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError

from longtake.errors import CheckpointError, MissingExtraError
from longtake.extras import import_from_extra
from longtake.language.family import Family
from longtake.language.frames import PictureFormat
from longtake.language.model_config import (
    SpecialIds,
    TextConfig,
    check_kind,
    end_ids,
    framing_ids,
    picture_format,
    read_json,
    special_ids,
    text_config,
)
from longtake.language.network import Network
from longtake.language.question_grammar import QuestionGrammar, known_ids, question_ids
from longtake.language.qwen2_5_vl import Qwen2_5VL
from longtake.language.tokenizer import Tokenizer

_log = logging.getLogger(__name__)
_PURPOSE = "Asking about a video"
_OLDEST = (5, 17)
_REPOSITORY = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>\w[\w./-]*))?")
_WEIGHTS = "model.safetensors"
_FILES = ["*.json", "*.safetensors", "merges.txt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """A loaded vision-language model with its tokenizer and configuration."""

    model: Any
    """A `Qwen2_5_VLForConditionalGeneration` in evaluation mode, without gradients."""
    tokenizer: Tokenizer | None
    """None where the folder has none."""
    text: TextConfig
    picture_format: PictureFormat
    special: SpecialIds | None
    """None where there is no tokenizer."""
    eos_ids: tuple[int, ...]
    """Any of them ends an answer."""
    suppressed_ids: tuple[int, ...]
    """What frames turns and clips, and so has no place in an answer."""
    known: QuestionGrammar | None = None
    """Which questions it was trained on, where its folder lists them; None where it can be asked anything."""

    @property
    def network(self) -> Network:
        """The model over our memory; from now on it attends through that alone."""
        return Qwen2_5VL.network(self.model)

    @property
    def family(self) -> Family:
        """What differs between families of models."""
        return Qwen2_5VL(self.special_ids, self.text)

    @property
    def required_tokenizer(self) -> Tokenizer:
        """The tokenizer; an error that says what to do where the folder has none."""
        if self.tokenizer is None:
            raise _no_tokenizer(self.model)
        return self.tokenizer

    @property
    def special_ids(self) -> SpecialIds:
        if self.special is None:
            raise _no_tokenizer(self.model)
        return self.special

    def question_ids(self, question: str) -> tuple[int, ...]:
        """A question in tokens; one outside of the model's grammar is refused in a sentence that lists it."""
        return question_ids(question, self.required_tokenizer, self.known)

    def choice_ids(self, choice: str) -> tuple[int, ...]:
        """A choice in tokens; refused if it has words outside of the model's vocabulary."""
        return known_ids(choice, self.required_tokenizer, self.known)

    @property
    def tokens_per_second(self) -> float:
        return self.text.tokens_per_second


def _no_tokenizer(model: Any) -> CheckpointError:
    return CheckpointError(
        f"Expected a tokenizer.json, or vocab.json and merges.txt, in {model.name_or_path}, but there is none; "
        "fetch them from the model's repository."
    )


def load_language(
    name_or_path: Path | str, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> LanguageModel:
    """A model from its folder, or from the hub's cache, into which it is fetched if need be.

    Without a number type, float32 on the CPU, elsewhere the one the weights are stored in.
    """
    transformers = _transformers()
    folder = _find_folder(name_or_path)
    if pipes := [path.name for path in folder.iterdir() if path.exists() and not (path.is_file() or path.is_dir())]:
        raise CheckpointError(f"Expected files in {folder}, but {pipes[0]} is a pipe or a device; fetch it again.")
    check_kind(name_or_path, read_json(folder / "config.json"))
    on_cpu = torch.device(device).type == "cpu"
    model = _read_model(transformers, folder, dtype or (torch.float32 if on_cpu else "auto"))
    tokenizer = Tokenizer.from_folder(folder)
    eos_ids = end_ids(folder, model.generation_config, tokenizer)
    special = None if tokenizer is None else special_ids(folder, tokenizer, model.config)
    return LanguageModel(
        model=model.to(device).requires_grad_(requires_grad=False).eval(),
        tokenizer=tokenizer,
        text=text_config(folder, model.config),
        picture_format=picture_format(folder, model.config.vision_config),
        special=special,
        eos_ids=eos_ids,
        suppressed_ids=framing_ids(special, model.config, eos_ids),
        known=QuestionGrammar.from_folder(folder),
    )


# what the library was seen to raise where a setting means nothing; RecursionError is a RuntimeError
_WRONG_SETTINGS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    ImportError,
    AttributeError,
    ArithmeticError,
)


def _transformers() -> ModuleType:
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if version < _OLDEST:
        raise MissingExtraError(
            f"{_PURPOSE} needs transformers {'.'.join(map(str, _OLDEST))} or newer, but {transformers.__version__} is "
            'installed; run: pip install --upgrade "longtake[qwen]"'
        )
    return transformers


def _read_model(transformers: ModuleType, folder: Path, dtype: torch.dtype | str) -> Any:
    hub_errors = import_from_extra("huggingface_hub.errors", "qwen", _PURPOSE)
    other_errors = (SafetensorError, hub_errors.StrictDataclassError)
    try:
        with quiet():
            model, report = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are in the report, and refused below by name
            )
    except (*_WRONG_SETTINGS, *other_errors) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise CheckpointError(
            f"Expected a Qwen2.5-VL model in {folder}, but it cannot be read ({reason}); fetch its files again."
        ) from error
    _check_complete(folder, report)
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's progress bars and tables: what matters of them is raised or logged by us."""
    output = import_from_extra("transformers.utils.logging", "qwen", _PURPOSE)
    verbosity, has_bars = output.get_verbosity(), output.is_progress_bar_enabled()
    output.set_verbosity_error()
    output.disable_progress_bar()
    try:
        yield
    finally:
        output.set_verbosity(verbosity)
        if has_bars:
            output.enable_progress_bar()


def _check_complete(folder: Path, report: dict[str, Any]) -> None:
    """Weights that are absent or of another shape were made up at random by the library."""
    wrong = sorted([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CheckpointError(
            f"Expected all weights that config.json asks for in {folder}, but {wrong[0]}{more} is missing or of "
            "another shape; fetch the model's files again."
        )
    if report["unexpected_keys"]:
        _log.warning("%s holds %d tensors that the model has no use for.", folder, len(report["unexpected_keys"]))


def _find_folder(name_or_path: Path | str) -> Path:
    try:
        path = Path(name_or_path).expanduser()
        is_there = path.exists()
    except (OSError, RuntimeError) as error:  # a name too long, the home of nobody
        raise CheckpointError(f"Expected the folder of a model, but {name_or_path} is no path ({error}).") from error
    if path.is_dir() and (path / "config.json").is_file():
        return path
    if is_there:
        found = "there is no config.json in it" if path.is_dir() else "it is a file"
        raise CheckpointError(f"Expected the folder of a model at {path}, but {found}; give the folder it is in.")
    if isinstance(name_or_path, str) and (on_hub := _REPOSITORY.fullmatch(name_or_path)):
        return _find_on_hub(on_hub["repo"], on_hub["revision"])
    raise CheckpointError(
        f"Expected the folder of a model at {name_or_path}, but nothing is there; check the path, or give micro-vqa, "
        "which comes with longtake, or organisation/repository on the Hugging Face hub."
    )


def _find_on_hub(repo: str, revision: str | None) -> Path:
    """The repository's folder in the hub's cache; fetched only after its configuration shows that it can be used."""
    hub = import_from_extra("huggingface_hub", "qwen", f"Finding {repo} by name")
    config = hub.try_to_load_from_cache(repo, "config.json", revision=revision)
    if isinstance(config, str) and _has_weights(Path(config).parent):
        return Path(config).parent
    return _fetch(hub, repo, revision)


def _has_weights(folder: Path) -> bool:
    index = folder / f"{_WEIGHTS}.index.json"
    shards = read_json(index).get("weight_map", {}).values() if index.is_file() else [_WEIGHTS]
    return all((folder / shard).is_file() for shard in shards)


def _fetch(hub: ModuleType, repo: str, revision: str | None) -> Path:
    errors = import_from_extra("huggingface_hub.errors", "qwen", f"Fetching {repo}")
    # the base of its HTTP errors stands for whichever client this version uses; its transfers raise RuntimeError
    failures = (OSError, RuntimeError, *errors.HfHubHTTPError.__bases__)
    try:
        # asks once; the download alone asks for 20 s where there is no network
        hub.get_hf_file_metadata(hub.hf_hub_url(repo, "config.json", revision=revision))
        config = Path(hub.hf_hub_download(repo, "config.json", revision=revision))
        check_kind(repo, read_json(config))
        _log.warning("Fetching %s; see https://huggingface.co/%s for the licence of the weights.", repo, repo)
        # all files of the commit that the configuration is of: the cache has a folder for each
        return Path(hub.snapshot_download(repo, revision=config.parent.name, allow_patterns=_FILES))
    except failures as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0]
        raise CheckpointError(
            f"{repo} is neither a folder here nor whole in the cache {hub.constants.HF_HUB_CACHE}, nor could it be "
            f"fetched from the Hugging Face hub ({reason}); fetch it by hand from https://huggingface.co/{repo} and "
            "pass the folder."
        ) from error
