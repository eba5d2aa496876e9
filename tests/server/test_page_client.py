"""The client on the page about the server, in a real browser, against a real server."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documented
import pytest
from PIL import Image
from served import QUESTION
from server_process import ServerProcess

import longtake
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra

(SCRIPT,) = documented.blocks([Path(__file__).parents[2] / "docs" / "server.md"], "js client")
TOKEN = "a-token-of-some-length"
USE = """
async ([pictures, question, token]) => {
  %s
  const session = await openSession({ memory: "40MB", share: 0.3, ask_fps: 5 }, token);
  const canvas = document.createElement("canvas");
  const acknowledged = [];
  for (const [number, { url, width, height }] of pictures.entries()) {
    const picture = Object.assign(new Image(), { src: url });
    await picture.decode();
    Object.assign(canvas, { width, height }).getContext("2d").drawImage(picture, 0, 0);
    acknowledged.push((await session.push(canvas, number / 10)).sequence);
  }
  const answer = await session.ask(question);
  const refused = await session.ask(" ").catch((error) => error.message);
  const wrong = await openSession({ memory: "lots" }, token).catch((error) => error.message);
  const closed = (await session.close()).status;
  return { id: session.id, acknowledged, answer, refused, wrong, closed };
}
"""


def as_url(frame: VideoFrame) -> dict[str, Any]:
    content = io.BytesIO()
    image = Image.fromarray(frame.image)
    image.save(content, "PNG")
    url = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    return {"url": url, "width": image.width, "height": image.height}


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with browser.new_page() as opened:
        yield opened


def test_forty_lines_open_push_follow_and_ask(page: Any, frames: list[VideoFrame], tmp_path: Path) -> None:
    assert len(SCRIPT.splitlines()) <= 40
    heard: list[str] = []
    page.on("console", lambda said: heard.append(said.text))
    page.on("pageerror", lambda error: heard.append(f"error {error}"))
    with ServerProcess(tmp_path / "sessions", environment={"LONGTAKE_TOKEN": TOKEN}) as server:
        page.goto(f"{server.url}/health")
        done = page.evaluate(USE % SCRIPT, [[as_url(frame) for frame in frames[:12]], QUESTION, TOKEN])
        assert longtake.Client(server.url, token=TOKEN).sessions() == []
    assert done["acknowledged"] == list(range(12))
    assert done["answer"]["text"]
    assert len(done["answer"]["pose"]) == 16
    assert "1 to 4000 characters" in done["refused"]
    assert "memory" in done["wrong"]
    assert done["closed"] == 204
    told = [line.split() for line in heard if line.startswith("pose ")]
    assert {int(line[1]) for line in told} == set(range(12))
    assert all(len(line) == 3 + 16 for line in told)
    assert not [line for line in heard if line.startswith("error")]
