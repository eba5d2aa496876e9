"""`longtake view`: a finished take in the page, in a browser, without a model."""

import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from longtake.cli import options
from longtake.cli.signals import stopped_by_signal
from longtake.extras import import_from_extra
from longtake.takes.packed import unpacked
from longtake.takes.take import read_take

app = options.command_app()
_HOST = "127.0.0.1"


@app.command()
def view(
    result: Annotated[Path, typer.Argument(help="A folder that map or world wrote, or a downloaded take (.zip).")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """Look at a finished result in a browser: cloud, path and pictures; no model runs."""
    import_from_extra("uvicorn", "serve", "The page")
    import_from_extra("fastapi", "serve", "The page")
    from longtake.server.access import AccessRules
    from longtake.server.run import http_server, listen
    from longtake.server.take_app import TAKE_ID, create_take_app

    with unpacked(result) as folder, listen(_HOST, port) as bound:
        take = read_take(folder)
        taken = int(bound.getsockname()[1])
        url = f"http://{_HOST}:{taken}/#session={TAKE_ID}"

        def say_ready() -> None:
            print(f"Showing {result} on {url}; Ctrl-C ends.", flush=True)
            if open_page:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        shown = create_take_app(take, lambda: _messages(folder), AccessRules.local(taken))
        server = http_server(shown, say_ready)
        with stopped_by_signal(server.stop):
            server.run(sockets=[bound])


def _messages(folder: Path) -> Iterator[bytes]:
    from longtake.server.point_history import PlacedChunk
    from longtake.server.take_points import chunks_of_take
    from longtake.server.viewer import points_message

    for number, (chunk, pose) in enumerate(chunks_of_take(folder)):
        yield points_message(PlacedChunk(sequence=number, chunk=chunk, world_from_chunk=pose, version=0), len(chunk))
