import json
import os
import pickle
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from longtake.errors import CheckpointError
from longtake.weights.checkpoint import open_checkpoint, some
from longtake.weights.files import INDEX

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(2.5), "c": torch.ones(4, dtype=torch.bfloat16)}


def save_model(state: dict[str, Tensor], path: Path) -> None:
    torch.save({"model": state, "epoch": 3}, path)


WRITERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    "bare.pt": lambda state, path: torch.save(state, path),
    "model.pt": save_model,
    "x.safetensors": lambda state, path: save_file(state, path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_names_shapes_types_and_values_come_back(name: str, tmp_path: Path) -> None:
    WRITERS[name](STATE, tmp_path / name)
    checkpoint = open_checkpoint(tmp_path / name)
    assert checkpoint.path == tmp_path / name
    assert checkpoint.tensors.keys() == STATE.keys()
    for key, want in STATE.items():
        stored = checkpoint.tensors[key]
        assert (stored.shape, stored.dtype) == (tuple(want.shape), want.dtype)
        assert (stored.num_parameters, stored.num_bytes) == (want.numel(), want.nbytes)
        assert torch.equal(stored.read(), want)


def test_format_is_told_by_content_whatever_the_name(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        blob = tmp_path / f"blob-of-{name}-without-suffix"
        write(STATE, blob)
        assert open_checkpoint(str(blob)).tensors.keys() == STATE.keys()


@pytest.mark.parametrize("extra", range(32))
def test_header_whose_length_looks_like_a_pickle_is_still_safetensors(extra: int, tmp_path: Path) -> None:
    """Headers are padded to eight bytes, so one in 32 has a length whose first byte is the pickles' 0x80."""
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={"note": "x" * 8 * extra})
    assert open_checkpoint(path).tensors.keys() == {"a"}


def test_metadata_comes_along(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "x.safetensors", metadata={"note": "hello"})
    assert open_checkpoint(tmp_path / "x.safetensors").metadata == {"note": "hello"}
    save_model(STATE, tmp_path / "x.pt")
    assert open_checkpoint(tmp_path / "x.pt").metadata == {}


def shard(folder: Path) -> None:
    save_file({"a": torch.zeros(2)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": torch.ones(3)}, folder / "model-00002-of-00002.safetensors")
    places = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


def test_several_files_joined_by_an_index_are_one_checkpoint(tmp_path: Path) -> None:
    shard(tmp_path)
    for path in (tmp_path, tmp_path / INDEX):
        checkpoint = open_checkpoint(path)
        assert {key: stored.shape for key, stored in checkpoint.tensors.items()} == {"a": (2,), "b": (3,)}
        assert torch.equal(checkpoint.tensors["b"].read(), torch.ones(3))


def test_index_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    shard(tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(CheckpointError, match=r"promises 1 tensors that its files do not hold \(b\)"):
        open_checkpoint(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors, but nothing is there"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_file_cut_anywhere_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](STATE, path)
    content = path.read_bytes()
    for length in (0, 1, 7, 8, 9, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="damaged, cut short or no file of weights") as caught:
            open_checkpoint(path)
        assert_one_sentence(caught.value)


def test_archive_damaged_anywhere_in_its_pickle_is_refused_and_nothing_else_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    save_model(STATE, path)
    content = path.read_bytes()
    start = content.index(b"\x80\x02") + 2
    refused = 0
    for at in range(start, content.index(b"PK", start)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            open_checkpoint(path)
        except CheckpointError as error:
            assert_one_sentence(error)
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (bytes(range(1, 65)), "no known format"),
        (b"<!DOCTYPE html><html>sign in</html>", "no known format"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(500), "damaged"),
        (b"\xff" * 8 + b"{" + bytes(50), "damaged"),
    ],
    ids=["numbers", "page", "pointer", "archive", "safetensors"],
)
def test_garbage_is_refused_in_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        open_checkpoint(tmp_path / "x.pt")
    assert_one_sentence(caught.value)


def test_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(CheckpointError, match="damaged"):
        open_checkpoint(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("content", "came"),
    [
        ([torch.zeros(1)], "one list"),
        ({"a": torch.zeros(1), "b": 3}, "under b"),
        ({"model": torch.zeros(1)}, "one Tensor"),
    ],
)
def test_archive_of_other_things_than_tensors_by_name_is_refused(content: object, came: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=f"Expected tensors by name .* got .*{came}"):
        open_checkpoint(tmp_path / "x.pt")


class Touch:
    """A pickle that creates a file when it is opened in earnest."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.system, (f"touch {self.path}",)


def test_pickle_with_code_in_it_is_refused_unrun(tmp_path: Path) -> None:
    trace, path = tmp_path / "ran", tmp_path / "x.pt"
    torch.save({"model": STATE, "surprise": Touch(trace)}, path)
    with pytest.raises(
        CheckpointError, match=r"refused because .* posix\.system, .* run code .* safetensors"
    ) as caught:
        open_checkpoint(path)
    assert_one_sentence(caught.value)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists(), "the trap itself must work, or this test shows nothing"


def test_bare_pickle_is_refused_unopened(tmp_path: Path) -> None:
    trace, path = tmp_path / "ran", tmp_path / "x.pt"
    path.write_bytes(pickle.dumps(Touch(trace)))
    with pytest.raises(CheckpointError, match=r"bare pickle, which can run code .* refused unopened"):
        open_checkpoint(path)
    torch.save(STATE, path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="bare pickle"):
        open_checkpoint(path)
    assert not trace.exists()


class Asks:
    """A pickle that makes something huge when it is opened, of what torch itself allows."""

    def __init__(self, make: Callable[..., object], *arguments: object) -> None:
        self.make, self.arguments = make, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.make, self.arguments


@pytest.mark.parametrize(
    "bomb",
    [
        Asks(bytearray, 5_000_000_000),
        Asks(torch.FloatTensor, 1_000_000_000),
        Asks(torch.FloatStorage, 1_000_000_000),
        Asks(torch.Tensor, 1_000_000_000),
    ],
    ids=["bytearray", "FloatTensor", "FloatStorage", "Tensor"],
)
def test_archive_that_asks_for_memory_is_refused_before_it_gets_any(bomb: Asks, tmp_path: Path) -> None:
    torch.save({"model": STATE, "surprise": bomb}, tmp_path / "x.pt")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"was refused because its pickle|is damaged") as caught:
        open_checkpoint(tmp_path / "x.pt")
    assert_one_sentence(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # of 1024 bytes


def rewritten(path: Path, change: Callable[[bytes], bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """The archive again, its pickle changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, change(content) if name.endswith("/data.pkl") else content)


@pytest.mark.parametrize(
    ("change", "compression", "reason"),
    [
        (lambda pickled: pickled, zipfile.ZIP_DEFLATED, "compressed"),
        (lambda pickled: pickled[:-1] + b"]0" * 4_000_000 + b".", zipfile.ZIP_STORED, "more than the names of tensors"),
        (lambda pickled: b"\x80\x02}r\xff\xff\xff\xef.", zipfile.ZIP_STORED, "counts more things"),
        (lambda pickled: b"\x80\x02\x8d" + bytes([0, 0, 0, 0, 9, 0, 0, 0]) + b"a.", zipfile.ZIP_STORED, "damaged"),
        (lambda pickled: pickled.replace(b"K\x01", b"J\xff\xff\xff\x7f"), zipfile.ZIP_STORED, "damaged"),
    ],
    ids=["deflated", "long", "memo", "text", "shape"],
)
def test_pickle_that_declares_too_much_is_refused(
    change: Callable[[bytes], bytes], compression: int, reason: str, tmp_path: Path
) -> None:
    save_model(STATE, tmp_path / "x.pt")
    rewritten(tmp_path / "x.pt", lambda pickled: pickled)
    assert set(open_checkpoint(tmp_path / "x.pt").tensors) == set(STATE)
    rewritten(tmp_path / "x.pt", change, compression)
    with pytest.raises(CheckpointError, match=reason) as caught:
        open_checkpoint(tmp_path / "x.pt")
    assert_one_sentence(caught.value)


def test_some_names_the_first_few() -> None:
    assert some(["b", "a"]) == "a, b"
    assert some(["d", "c", "b", "a"]) == "a, b, c and others"


def assert_one_sentence(error: CheckpointError) -> None:
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text
