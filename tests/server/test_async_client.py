"""A real server and clients that wait for many things at once."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from served import BOTH, QUESTION, Outputs, without_times
from server_process import ServerProcess

import longtake
from longtake.errors import InputError, SettingError
from longtake.server.async_client import AsyncRemoteSession
from longtake.server.results import answer_record, geometry_bytes
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("served") / "sessions") as started:
        yield started


async def opened(url: str) -> AsyncRemoteSession:
    client = longtake.AsyncClient(url)
    return await client.open_session(memory=BOTH.memory_bytes, share=BOTH.share, ask_fps=BOTH.ask_fps)


async def stepped(session: AsyncRemoteSession, frames: Sequence[VideoFrame]) -> tuple[bytes, ...]:
    results = []
    for frame in frames:
        geometry = await session.step(frame)
        assert geometry is not None
        results.append(geometry_bytes(geometry))
    return tuple(results)


async def asked(session: AsyncRemoteSession) -> str:
    return without_times(answer_record(await session.ask(QUESTION)))


def test_sessions_side_by_side_get_to_the_bit_what_local_ones_say(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    async def watch() -> Outputs:
        async with await opened(server.url) as session:
            return Outputs(await stepped(session, frames), await asked(session))

    async def both() -> list[Outputs]:
        return await asyncio.gather(watch(), watch())

    assert asyncio.run(both()) == [local, local]


def test_a_lost_connection_an_eviction_and_a_cancelled_step_leave_no_trace(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    async def watch() -> Outputs:
        async with await opened(server.url) as session:
            steps = await stepped(session, frames[:6])
            assert session._wire._socket is not None
            session._wire._socket.transport.abort()
            steps += await stepped(session, frames[6:9])
            begun = asyncio.create_task(session.step(frames[9]))
            await asyncio.sleep(0.01)
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)
            rest = await stepped(session, frames[10:12])
            evicted = await asyncio.to_thread(server.call, "POST", f"/v1/sessions/{session.id}/evict")
            assert evicted.record["state"] == "saved"
            await session.detach()
            return Outputs((*steps, local.steps[9], *rest, *await stepped(session, frames[12:])), await asked(session))

    assert asyncio.run(watch()) == local


def test_words_come_one_by_one_while_frames_are_stepped_by_another_task(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    async def answer(session: AsyncRemoteSession) -> list[object]:
        return [piece async for piece in session.ask_stream(QUESTION)]

    async def watch() -> None:
        async with await opened(server.url) as session:
            steps = await stepped(session, frames[:12])
            pieces, rest = await asyncio.gather(answer(session), stepped(session, frames[12:]))
            assert "".join(piece for piece in pieces[:-1] if isinstance(piece, str)) == pieces[-1].text
            async for _ in session.ask_stream(QUESTION):
                break
            assert Outputs(steps + rest, await asked(session)) == local
            assert (await session.info())["num_frames"] == 24

    asyncio.run(watch())


@pytest.mark.by_hand
def test_a_killed_server_that_comes_back_goes_on_to_the_same_bits(
    frames: list[VideoFrame], local: Outputs, tmp_path: Path
) -> None:
    async def watch() -> Outputs:
        with ServerProcess(tmp_path / "sessions", "--save-every", "5") as first:
            session = await opened(first.url)
            steps = await stepped(session, frames[:12])
            first.kill()
            with ServerProcess(tmp_path / "sessions", port=first.port):
                steps += await stepped(session, frames[12:])
                outputs = Outputs(steps, await asked(session))
                async with await session.fork() as fork:
                    assert (await fork.info())["num_frames"] == 24
                await session.save()
                assert len(await session.finish() or ()) == 0
                await session.close()
                return outputs

    assert asyncio.run(watch()) == local


def test_what_is_refused_is_an_error_of_the_same_kind(server: ServerProcess, frames: list[VideoFrame]) -> None:
    async def watch() -> None:
        client = longtake.AsyncClient(server.url)
        assert {model["kind"] for model in await client.models()} == {"map", "language"}
        with pytest.raises(SettingError, match="memory"):
            await client.open_session(memory="lots")
        with pytest.raises(InputError, match="no session '0000000000000000' on the server"):
            await client.session("0" * 16)
        async with await client.open_session(memory="40MB") as session:
            assert session.id in [one["id"] for one in await client.sessions()]
            assert (await client.session(session.id)).id == session.id
            with pytest.raises(InputError, match="Expected a time"):
                await session.step(frames[0].image)
            with pytest.raises(InputError, match="1 to 4000 characters"):
                await session.ask(" ")

    asyncio.run(watch())
