import io
import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from longtake.server.frames import MAX_FRAME_BYTES, decode_frame
from longtake.server.messages import HEADER_BYTES, BinaryMessage, Codec, MessageKind, parse_text, unpack
from longtake.server.problems import RequestError


def raw_frame(**changes: object) -> BinaryMessage:
    fields = {"width": 4, "height": 3, "time_s": 1 / 3}
    message = {"kind": MessageKind.FRAME, "codec": Codec.RAW, "sequence": 7, "time_us": 333_333, "fields": fields}
    return BinaryMessage(**{**message, "payload": bytes(range(36)), **changes})


def test_the_header_has_sixteen_bytes_in_the_order_told() -> None:
    packed = raw_frame(fields={}, payload=b"xyz").pack()
    assert HEADER_BYTES == 16
    assert packed == bytes([1, 0, 0, 0, 7, 0, 0, 0]) + (333_333).to_bytes(8, "little") + b"xyz"


def test_a_message_comes_back_as_it_was_with_its_time_to_the_bit() -> None:
    again = unpack(raw_frame().pack())
    assert again == raw_frame()
    assert again.time_s == 1 / 3
    assert unpack(raw_frame(fields={}).pack()).time_s == 0.333333


def test_pixels_come_back_as_they_were() -> None:
    pixels = decode_frame(unpack(raw_frame().pack()))
    assert pixels.shape == (3, 4, 3)
    assert pixels.tobytes() == bytes(range(36))


@pytest.mark.parametrize(("codec", "form"), [(Codec.JPEG, "JPEG"), (Codec.PNG, "PNG")])
def test_packed_pictures_are_unpacked_and_no_other_form_is(codec: Codec, form: str) -> None:
    picture = Image.fromarray(np.full((8, 9, 3), 128, np.uint8))
    file = io.BytesIO()
    picture.save(file, form)
    message = raw_frame(codec=codec, fields={}, payload=file.getvalue())
    assert decode_frame(message).shape == (8, 9, 3)
    other = Codec.PNG if codec is Codec.JPEG else Codec.JPEG
    with pytest.raises(RequestError, match="cannot be read"):
        decode_frame(raw_frame(codec=other, fields={}, payload=file.getvalue()))
    with pytest.raises(RequestError, match="cannot be read"):
        decode_frame(raw_frame(codec=codec, fields={}, payload=file.getvalue()[:-40]))


def test_a_picture_that_would_unpack_to_too_much_is_refused() -> None:
    file = io.BytesIO()
    Image.new("L", (20_000, 1000)).save(file, "PNG")
    assert len(file.getvalue()) < 100_000
    with pytest.raises(RequestError, match="at most 16000000 pixels"):
        decode_frame(raw_frame(codec=Codec.PNG, fields={}, payload=file.getvalue()))
    with pytest.raises(RequestError, match="at most 8000000 bytes"):
        decode_frame(raw_frame(payload=bytes(MAX_FRAME_BYTES + 1)))


@pytest.mark.parametrize(
    "fields",
    [{}, {"width": 4}, {"width": 4, "height": True}, {"width": -4, "height": -3}, {"width": "4", "height": 3}],
)
def test_raw_frames_without_their_size_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="width and height"):
        decode_frame(raw_frame(fields=fields))


@pytest.mark.parametrize("time_s", [None, "1", True, float("inf"), 10**400])
def test_times_that_are_none_are_refused(time_s: object) -> None:
    with pytest.raises(RequestError, match="finite"):
        _ = raw_frame(fields={"time_s": time_s}).time_s


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_a_sentence(content: bytes) -> None:
    try:
        message = unpack(content)
    except RequestError:
        return
    assert unpack(message.pack()) == message


@given(st.text(max_size=40))
def test_any_text_is_an_object_or_a_sentence(text: str) -> None:
    with suppress(RequestError):
        assert isinstance(parse_text(text), dict)


def test_deep_and_odd_texts_are_refused() -> None:
    for text in ("[" * 100_000, json.dumps([1]), "", "NaN"):
        with pytest.raises(RequestError, match="JSON object"):
            parse_text(text)
