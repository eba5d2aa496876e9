"""Files of tensors: whole or absent, readable by anyone, written without holding them."""

import json
import os
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from longtake.errors import InputError, SavedSessionError
from longtake.memory.saved import Pieces, SavedTensors, write_tensors

TENSORS = {
    "halves": torch.randn(4, 3).bfloat16(),
    "floats": torch.randn(2, 3, 4),
    "small": torch.randn(5).half(),
    "exact": torch.randn(3, dtype=torch.float64),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "count": torch.tensor(42),
    "none": torch.empty(0, 3),
}
RECORD = {"format": 1, "words": 'a "quoted" word, and ünïcode', "list": [1, None, 2.5]}


def pieces_of(tensors: dict[str, Tensor]) -> dict[str, Pieces]:
    return {name: Pieces.of(tensor) for name, tensor in tensors.items()}


def test_safetensors_own_reader_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    loaded = load_file(path)
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["longtake"]) == RECORD


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    saved = SavedTensors(path)
    assert saved.record == RECORD
    assert all(torch.equal(saved[name], tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize("length", range(8))
def test_tensors_begin_at_multiples_of_eight_bytes_whatever_the_record(length: int, tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), {"padding": "x" * length})
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0
    assert torch.equal(load_file(path)["floats"], TENSORS["floats"])


def test_pieces_of_any_length_and_stride_make_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    tensor = torch.randn(9, 4, 2)
    apart = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    assert not apart.is_contiguous()
    pieces = Pieces(tensor.dtype, (9, 4, 2), iter((apart[:2], apart[2:2], apart[2:3], apart[3:].requires_grad_())))
    assert pieces.num_bytes == tensor.nbytes
    write_tensors(path, {"tensor": pieces, "after": Pieces.of(TENSORS["small"])}, {})
    assert torch.equal(SavedTensors(path)["tensor"], tensor)
    assert torch.equal(SavedTensors(path)["after"], TENSORS["small"])


def test_every_second_number_is_written_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    every_second = torch.arange(10.0)[::2]
    write_tensors(path, {"tensor": Pieces.of(every_second)}, {})
    assert SavedTensors(path)["tensor"].tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_file_is_on_the_disk_before_it_bears_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "saved.safetensors"
    synced: list[tuple[bool, int]] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((path.exists(), os.fstat(file).st_size)))
    write_tensors(path, pieces_of(TENSORS), RECORD)
    assert synced == [(False, path.stat().st_size)]


class PowerCut(BaseException):
    """Not an `Exception`: as an interrupt from the keyboard."""


def interrupted() -> Iterator[Tensor]:
    yield torch.zeros(2, 2)
    raise PowerCut


def test_file_is_absent_after_a_failure_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    with pytest.raises(PowerCut):
        write_tensors(path, {"tensor": Pieces(torch.float32, (4, 2), interrupted())}, {})
    assert list(tmp_path.iterdir()) == []


def test_earlier_file_survives_a_failure_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    before = path.read_bytes()
    with pytest.raises(PowerCut):
        write_tensors(path, {"tensor": Pieces(torch.float32, (4, 2), interrupted())}, {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_bears_the_name_until_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"

    def watched() -> Iterator[Tensor]:
        yield torch.zeros(2, 2)
        assert not path.exists()
        assert (tmp_path / "saved.safetensors.unfinished").exists()
        yield torch.ones(2, 2)

    write_tensors(path, {"tensor": Pieces(torch.float32, (4, 2), watched())}, {})
    assert list(tmp_path.iterdir()) == [path]


def test_later_file_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    for count in (1, 2):
        write_tensors(path, {"count": Pieces.of(torch.tensor(count))}, {"count": count})
    assert SavedTensors(path).record == {"count": 2}
    assert int(SavedTensors(path)["count"]) == 2


def test_path_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    for path, reason in (
        (tmp_path / "nowhere" / "saved.safetensors", "No such file or directory"),
        (tmp_path / "file" / "saved.safetensors", "Not a directory"),
        (tmp_path / "folder", "Is a directory"),
    ):
        with pytest.raises(InputError, match=rf"{path} cannot be written \({reason}\); make room .*folder\.$") as error:
            write_tensors(path, pieces_of(TENSORS), RECORD)
        assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file", tmp_path / "folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_full_disk_is_one_sentence_and_the_earlier_file_survives(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    before = path.read_bytes()
    path.with_name(path.name + ".unfinished").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"saved.safetensors cannot be written \(No space left on device\); make room"):
        write_tensors(path, {"large": Pieces.of(torch.zeros(100_000))}, RECORD)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("cut", [1, 100, -7, -20])
def test_truncated_file_is_refused_with_a_sentence(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(SavedSessionError, match=r"saved.safetensors is not a complete saved session \(.*\); save it"):
        SavedTensors(path)


def test_absent_and_foreign_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    foreign, text = tmp_path / "foreign.safetensors", tmp_path / "text.safetensors"
    with pytest.raises(SavedSessionError, match=r"There is no saved session at .*absent\.safetensors; check the path"):
        SavedTensors(tmp_path / "absent.safetensors")
    text.write_text("frame 1: a chair")
    with pytest.raises(SavedSessionError, match="not a complete saved session"):
        SavedTensors(text)
    for metadata in (None, {"format": "pt"}, {"longtake": "{"}):
        save_file({"tensor": torch.zeros(2)}, foreign, metadata=metadata)
        with pytest.raises(SavedSessionError, match="not a complete saved session"):
            SavedTensors(foreign)


def test_writing_many_pieces_holds_only_a_few(tmp_path: Path) -> None:
    num_pieces, piece_bytes = 40, 2**20
    alive: list[weakref.ref[Tensor]] = []
    most_alive = 0

    def made_one_at_a_time() -> Iterator[Tensor]:
        nonlocal most_alive
        for index in range(num_pieces):
            piece = torch.full((1, piece_bytes // 4), float(index))
            alive.append(weakref.ref(piece))
            most_alive = max(most_alive, sum(ref() is not None for ref in alive))
            yield piece
            del piece

    pieces = Pieces(torch.float32, (num_pieces, piece_bytes // 4), made_one_at_a_time())
    tracemalloc.start()  # sees bytes and arrays; the pieces' own storage is what the references count
    try:
        write_tensors(tmp_path / "saved.safetensors", {"tensor": pieces}, {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_alive <= 2
    assert peak < 4 * piece_bytes
    assert (tmp_path / "saved.safetensors").stat().st_size > num_pieces * piece_bytes
    assert SavedTensors(tmp_path / "saved.safetensors")["tensor"][:, 0].tolist() == list(range(num_pieces))


def test_missing_tensor_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"here": Pieces.of(torch.ones(2))}, {})
    with pytest.raises(SavedSessionError, match="no tensor 'there'"):
        SavedTensors(path)["there"]


@pytest.mark.parametrize("where", ["first header byte", "checksum", "record", "first number", "last number"])
def test_one_bit_anywhere_is_noticed(where: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    places = {
        "first header byte": 8,
        "checksum": content.index(b"sha256") + 12,
        "record": content.index(b"quoted"),
        "first number": header,
        "last number": len(content) - 1,
    }
    content[places[where]] ^= 1
    path.write_bytes(content)
    with pytest.raises(SavedSessionError, match=r"not a complete saved session \(.*\); save it again.$"):
        SavedTensors(path)


def test_a_file_of_an_earlier_version_without_a_checksum_is_read(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    save_file({"tensor": torch.arange(3.0)}, path, metadata={"longtake": json.dumps(RECORD)})
    assert SavedTensors(path).record == RECORD
    save_file({"tensor": torch.arange(3.0)}, path, metadata={"longtake": json.dumps(RECORD), "sha257": "0"})
    with pytest.raises(SavedSessionError, match="'sha256' in its metadata"):
        SavedTensors(path)


def test_a_tensor_of_another_shape_or_type_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    write_tensors(path, pieces_of(TENSORS), RECORD)
    saved = SavedTensors(path)
    assert saved.read("floats", torch.float32, (None, 3, 4)).shape == (2, 3, 4)
    for dtype, shape in ((torch.float32, (2, 3)), (torch.float32, (2, 3, 5)), (torch.int64, (2, 3, 4))):
        with pytest.raises(SavedSessionError, match=r"Expected 'floats' of the saved session as 2 x 3.*save it again"):
            saved.read("floats", dtype, shape)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SavedSessionError, match="it is no file"):
        SavedTensors(tmp_path / "pipe")
