"""Sockets opened by hand: bytes as they are on the wire, also such that break the protocol below its messages."""

import os
import random
import socket
import struct
from contextlib import suppress

_PATIENCE_S = 20.0
_TEXT, BINARY, _CLOSE, _PING = 0x1, 0x2, 0x8, 0x9
FINAL = 0x80


def bare_socket(port: int, path: str) -> socket.socket:
    """A connection behind its handshake; what the server said since then waits in it."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
    connection.sendall(_handshake(port, path))
    reply = b""
    while not reply.endswith(b"\r\n\r\n"):
        reply += connection.recv(1)
    assert reply.startswith(b"HTTP/1.1 101 "), reply
    return connection


def break_socket(port: int, path: str, rng: random.Random) -> bool:
    """Open a socket, send something that no client may, and say whether the server ended it."""
    with bare_socket(port, path) as connection:
        name = rng.choice(list(_BREAKS))
        connection.sendall(_BREAKS[name](rng))
        if name == "half a frame":
            return True  # leaving in the middle is the break
        return _is_ended(connection)


def _is_ended(connection: socket.socket) -> bool:
    with suppress(ConnectionError):
        try:
            while connection.recv(65536):
                pass
        except TimeoutError:
            return False
    return True


def _handshake(port: int, path: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version: 13",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def wire_frame(first: int, payload: bytes, *, length: int | None = None, is_masked: bool = True) -> bytes:
    """With a mask of zeros, which is one; `length` is what it says of itself."""
    said = len(payload) if length is None else length
    mask_bit, mask = (0x80, bytes(4)) if is_masked else (0, b"")
    if said < 126:
        head = bytes([first, mask_bit | said])
    elif said < 65536:
        head = bytes([first, mask_bit | 126]) + struct.pack(">H", said)
    else:
        head = bytes([first, mask_bit | 127]) + struct.pack(">Q", said)
    return head + mask + payload


_BREAKS = {
    "half a frame": lambda rng: wire_frame(FINAL | BINARY, rng.randbytes(rng.randint(0, 3000)), length=40_000),
    "no frame": lambda _: os.urandom(200).replace(b"\x01", b"\xff").replace(b"\x02", b"\xff"),
    "an unmasked frame": lambda _: wire_frame(FINAL | _TEXT, b"{}", is_masked=False),
    "an unknown opcode": lambda rng: wire_frame(FINAL | rng.choice([0x3, 0x7, 0xB, 0xF]), b"x"),
    "reserved bits": lambda rng: wire_frame(FINAL | rng.choice([0x10, 0x20, 0x40]) | _TEXT, b"{}"),
    "a continuation of nothing": lambda _: wire_frame(FINAL, b"x"),
    "a message within a message": lambda _: wire_frame(_TEXT, b"x") + wire_frame(FINAL | _TEXT, b"y"),
    "a message too large": lambda rng: wire_frame(FINAL | BINARY, b"x" * 100, length=rng.choice([9_000_000, 2**40])),
    "a length that cannot be": lambda _: wire_frame(FINAL | BINARY, b"x", length=2**63 + 5),
    "a control frame too large": lambda _: wire_frame(FINAL | _PING, b"x" * 126),
    "a control frame in parts": lambda _: wire_frame(_PING, b"x"),
    "text that is none": lambda _: wire_frame(FINAL | _TEXT, b"\xff\xfe\xfd"),
    "a wrong end": lambda rng: wire_frame(FINAL | _CLOSE, rng.choice([b"x", struct.pack(">H", 5), b"\x03\xe8\xff"])),
}
