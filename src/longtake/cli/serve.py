"""`longtake serve`: sessions for programs, robots and pages, over HTTP and WebSocket."""

import gc
import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtake.cli import options
from longtake.cli.program import silence_stdout
from longtake.cli.signals import leave, stopped_by_signal
from longtake.errors import InputError, SettingError
from longtake.extras import import_from_extra
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL

if TYPE_CHECKING:
    from longtake.server.certificate import CertificateFiles

app = options.command_app()
_LOCAL = ("127.0.0.1", "localhost", "::1")
_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - what an operator may say, with a token
_LOG_LEVELS = ("debug", "info", "warning", "error")
_GIVEN_AS = f"the environment of the server has as {options.TOKEN_VARIABLE}"
_PRINTED = "it printed when it was started"
_DAY_S = 86_400.0
_BLAS_PATIENCE = ("OPENBLAS_THREAD_TIMEOUT", "4")
"""For how many cycles, as a power of two, a thread of numpy's products looks for more work before it sleeps. The usual
26 are 25 ms after each product, however small, in which others lack the core. No bit depends on it."""
_SWITCH_S = 0.0005
"""After which a thread lets others have the interpreter. With the usual 5 ms a frame that comes in, the worker and an
acknowledgement on its way out would wait so long, each, for what records the frame before."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8765,
    folder: Annotated[Path, typer.Option(help="Where sessions are saved.")] = Path("longtake-sessions"),
    model: Annotated[list[str] | None, typer.Option(help="A model for maps that clients may name; repeatable.")] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="A model for questions that clients may name; repeatable.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Of all sessions together.")] = "2GB",
    session_memory: Annotated[str, typer.Option(help="Of a session that does not say.")] = "64MB",
    idle: Annotated[float, typer.Option(min=1.0, help="Seconds after which a session leaves memory, saved.")] = 300.0,
    save_every: Annotated[int, typer.Option(min=1, help="Frames between two saves of a session.")] = 32,
    retention: Annotated[float, typer.Option(min=0.001, help="Days that an unused session is kept.")] = 30.0,
    quota: Annotated[str, typer.Option(help="Room on the disk for all sessions.")] = "20GB",
    name: Annotated[
        list[str] | None, typer.Option(help="A name under which clients reach the server; repeatable.")
    ] = None,
    allow_addresses: Annotated[
        bool, typer.Option(help="Let clients name URLs, streams and cameras for the server to open.")
    ] = False,
    allow_webhooks: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Let standing questions post what they find there; repeatable."),
    ] = None,
    https: Annotated[
        bool, typer.Option("--https", help="Serve by HTTPS, with a certificate of the server's own.")
    ] = False,
    certificate: Annotated[Path | None, typer.Option(help="Serve by HTTPS with this certificate (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
    log_level: Annotated[
        str, typer.Option(help="What goes to stderr, a JSON object a line: debug, info, warning or error.")
    ] = "info",
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: options.Device = "auto",
    precision: options.PrecisionName = "auto",
) -> None:
    """Serve sessions to programs, robots and pages: frames in, poses, depth and answers out, saved when idle."""
    os.environ.setdefault(*_BLAS_PATIENCE)  # before numpy is loaded, which reads it
    import_from_extra("uvicorn", "serve", "A server")
    import_from_extra("fastapi", "serve", "A server")
    from longtake.api.arguments import memory_bytes, one_of
    from longtake.server.access import AccessRules
    from longtake.server.app import create_app
    from longtake.server.certificate import own_certificate
    from longtake.server.engine import Engine
    from longtake.server.logs import write_logs
    from longtake.server.networks import Networks
    from longtake.server.run import http_server, listen
    from longtake.server.settings import ServerSettings
    from longtake.server.webhooks import webhook_hosts

    settings = ServerSettings(
        folder=folder,
        budget_bytes=memory_bytes(memory),
        session_bytes=memory_bytes(session_memory),
        idle_s=idle,
        save_every_frames=save_every,
        retention_s=retention * _DAY_S,
        quota_bytes=memory_bytes(quota),
        allows_addresses=allow_addresses,
        webhook_hosts=webhook_hosts(allow_webhooks or ()),
    )
    networks = Networks(model or [DEFAULT_MODEL], language or [DEFAULT_LANGUAGE], device, precision)
    token = _token(host)
    write_logs(sys.stderr, one_of("--log-level", log_level, _LOG_LEVELS), secrets=[token] if token else [])
    names = tuple(dict.fromkeys([*(name or ()), *_names_of(host)]))
    files = _given_files(certificate, key)
    if files is None and https:
        files = own_certificate(folder, names)
        print(f"Clients need this certificate: {files.certificate}", flush=True)
    scheme = "http" if files is None else "https"
    sys.setswitchinterval(_SWITCH_S)
    with listen(host, port) as bound:
        taken = int(bound.getsockname()[1])
        rules = AccessRules.named(names, taken, scheme=scheme, token=token)
        rules = replace(rules, given_as=_GIVEN_AS if _is_token_given() else _PRINTED)
        urls = " and ".join(f"{scheme}://{shown}:{taken}" for shown in _shown_names(host, names))
        if open_page:  # a browser that starts meanwhile waits at the socket until models are loaded
            _open_page(f"{scheme}://{names[0]}:{taken}/", token)
        networks.load_first()
        with _loaded_for_good(), Engine(settings, networks) as engine:
            server = http_server(
                create_app(engine, rules),
                lambda: print(f"Serving on {urls}, sessions in {folder}; Ctrl-C saves all and ends.", flush=True),
                files,
            )
            if token is not None:
                print(_token_line(token), flush=True)
            with stopped_by_signal(server.stop, leave):
                server.run(sockets=[bound])
            if engine.is_draining:
                _tell_saved(len(engine.sessions), engine.num_unsaved_sessions)


@contextmanager
def _loaded_for_good() -> Iterator[None]:
    """Look through nothing that is loaded by now for garbage: it takes 0.2 s, for which all sessions would wait."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # libraries complain else of what is left at the end


def _tell_saved(num_sessions: int, num_unsaved: int) -> None:
    """The last line of a server that had sessions, unless the terminal is gone."""
    if num_unsaved:
        raise InputError(
            f"Of {num_sessions} sessions {num_unsaved} could not be saved as they were; the lines above say why, and "
            "those that were are there when it is started again with the same --folder."
        )
    if not num_sessions:
        return
    saved = "1 session" if num_sessions == 1 else f"{num_sessions} sessions"
    try:
        print(f"Saved {saved}; start again with the same --folder to go on.", flush=True)
    except OSError:
        silence_stdout()


def _open_page(url: str, token: str | None) -> None:
    """In a thread, since a browser may take its time; the token is in the part of the address that no server sees."""
    address = url if token is None else f"{url}#token={token}"
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _is_token_given() -> bool:
    return options.TOKEN_VARIABLE in os.environ


def _token_line(token: str) -> str:
    """One that was made has to be printed once; one that the operator knows never is."""
    if _is_token_given():
        return f"Clients need the token that {_GIVEN_AS}."
    return f"Clients need this token: {token}"


def _token(host: str) -> str | None:
    """From the environment, or a new one where others than this machine can reach the server."""
    given = os.environ.get(options.TOKEN_VARIABLE)
    if given is not None and len(given) < 16:
        raise SettingError(
            f"Expected {options.TOKEN_VARIABLE} with 16 characters or more; leave it out to have one made."
        )
    if given is None and host in _LOCAL:
        return None
    return given or secrets.token_urlsafe(24)


def _given_files(certificate: Path | None, key: Path | None) -> "CertificateFiles | None":
    """The operator's own, if there are any."""
    from longtake.server.certificate import CertificateFiles

    if (certificate is None) != (key is None):
        raise SettingError("Expected --certificate and --key together; give both, or --https to have one made.")
    if certificate is None or key is None:
        return None
    return CertificateFiles(certificate, key).require_usable()


def _names_of(host: str) -> tuple[str, ...]:
    """Under which it is reached without anybody saying so; of all addresses, that which others know it by too."""
    from longtake.server.run import own_addresses

    if host not in (*_LOCAL, *_ALL_ADDRESSES):
        return (_bracketed(host),)
    others = own_addresses(host) if host in _ALL_ADDRESSES else ()
    return ("127.0.0.1", "localhost", "[::1]", *map(_bracketed, others))


def _shown_names(host: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those that a browser can open, which an address that stands for all is not; this machine's own last."""
    if host not in _ALL_ADDRESSES:
        return (_bracketed(host),)
    here = "[::1]" if ":" in host else "127.0.0.1"
    return (*(name for name in names if name.strip("[]") not in _LOCAL), here)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
