"""What is said of a server that does not answer."""

import socket
from urllib.error import URLError

import pytest

from longtake.errors import InputError
from longtake.server.address import ServerAddress
from longtake.server.exchange import Call


def test_nobody_is_shown_what_the_library_calls_it() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = ServerAddress(f"http://127.0.0.1:{taken.getsockname()[1]}", None, patience_s=1.0)
        with pytest.raises(InputError, match=r"cannot be reached \(Connection refused\); is it running\?"):
            address.call(Call("GET", "/models"))
    assert "(no route)" in str(address.unreachable(URLError("no route")))
