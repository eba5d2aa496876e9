"""Programs of others, unchanged, against a real server: OpenAI's client, curl, and a browser's own WebSocket."""

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from served import QUESTION
from server_process import ServerProcess

import longtake
from longtake.server.client import RemoteSession
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("strangers") / "sessions") as started:
        yield started


@pytest.fixture(scope="module")
def watched(server: ServerProcess, frames: list[VideoFrame]) -> Iterator[RemoteSession]:
    with longtake.Client(server.url).open_session(memory="40MB", share=0.3, ask_fps=5.0) as session:
        for frame in frames[:12]:
            session.step(frame)
        yield session


@pytest.fixture(scope="module")
def openai_client(server: ServerProcess) -> Iterator[Any]:
    openai = pytest.importorskip("openai", reason="there is no openai; `make test-extra` installs it")
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", http_client=http, max_retries=0) as client:
        yield client


def completed(client: Any, id: str, **more: Any) -> Any:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    asked = {"model": "micro-vqa", "messages": messages, "extra_body": {"session_id": id}, **more}
    return client.chat.completions.create(**asked)


def test_openai_s_client_asks_about_a_session(openai_client: Any, watched: RemoteSession) -> None:
    expected = watched.ask(QUESTION)
    whole = completed(openai_client, watched.id)
    assert whole.choices[0].message.content == expected.text
    assert whole.choices[0].finish_reason == "stop"
    usage = whole.usage
    assert usage.prompt_tokens == expected.answer.num_prompt_tokens > len(QUESTION.split())
    assert usage.completion_tokens == len(expected.answer.ids)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert whole.longtake["seen_until_s"] == expected.answer.seen_until_s
    assert {model.id for model in openai_client.models.list()} == {"micro-map", "micro-vqa"}


def test_openai_s_client_hears_an_answer_as_it_comes(openai_client: Any, watched: RemoteSession) -> None:
    *chunks, last = completed(
        openai_client, watched.id, stream=True, max_completion_tokens=20, stream_options={"include_usage": True}
    )
    assert last.usage.prompt_tokens == watched.ask(QUESTION).answer.num_prompt_tokens
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == watched.ask(QUESTION).text
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len(chunks) >= 3
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_openai_s_client_raises_its_own_errors(openai_client: Any, watched: RemoteSession) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="no session of this id"):
        completed(openai_client, "0" * 16)
    with pytest.raises(openai.UnprocessableEntityError, match="temperature"):
        completed(openai_client, watched.id, temperature=1000)
    with pytest.raises(openai.BadRequestError, match="max_tokens from 1 to 64"):
        completed(openai_client, watched.id, max_tokens=999)
    with pytest.raises(openai.NotFoundError, match="'gpt-4o' in this session, which answers with micro-vqa") as unknown:
        completed(openai_client, watched.id, model="gpt-4o")
    assert unknown.value.code == "model_not_found"
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    missed: list[dict[str, Any]] = [
        {"tools": [tool]},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"n": 2, "stream": True},
    ]
    for wanted in missed:
        with pytest.raises(openai.BadRequestError, match=next(iter(wanted))) as unsupported:
            completed(openai_client, watched.id, **wanted)
        assert unsupported.value.code == "unsupported_parameter"
    picture = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    with pytest.raises(openai.BadRequestError, match="as its frames"):
        completed(openai_client, watched.id, messages=[{"role": "user", "content": picture}])
    completed(openai_client, watched.id, tools=[], n=1, response_format={"type": "text"}, user="me", seed=3)


def test_openai_s_client_is_told_when_it_asks_too_much_at_once(openai_client: Any, watched: RemoteSession) -> None:
    import openai

    def text_or_error(_: int) -> str:
        try:
            return str(completed(openai_client, watched.id).choices[0].message.content)
        except openai.RateLimitError as error:
            return str(error)

    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(text_or_error, range(24)))
    answers = [text for text in found if "questions at once" not in text]
    assert 4 <= len(answers) < 24
    assert len(set(answers)) == 1


def curled(*arguments: str) -> tuple[int, bytes]:
    """The status and the body that curl got."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    command = ["curl", "-s", "--noproxy", "*", "--max-time", "60", "-w", "\n%{http_code}", *arguments]
    content, _, status = subprocess.run(command, capture_output=True, check=True).stdout.rpartition(b"\n")
    return int(status), content


def test_curl_asks_streams_and_downloads(server: ServerProcess, watched: RemoteSession) -> None:
    body = {"session_id": watched.id, "messages": [{"role": "user", "content": QUESTION}]}
    kind = ("-H", "Content-Type: application/json")
    url = f"{server.url}/v1/chat/completions"
    status, content = curled(url, *kind, "-d", json.dumps(body))
    assert status == 200
    text = json.loads(content)["choices"][0]["message"]["content"]
    assert text == watched.ask(QUESTION).text
    status, content = curled("-N", url, *kind, "-d", json.dumps({**body, "stream": True}))
    assert status == 200
    assert content.rstrip().endswith(b"data: [DONE]")
    status, content = curled(f"{server.url}/v1/sessions/{watched.id}/poses.tum")
    assert (status, len(content.splitlines())) == (200, 12)
    assert curled("-X", "DELETE", f"{server.url}/v1/sessions/none")[0] == 404


PAGE_PROGRAM = """
async ([id, width, height, pixels, numFrames, question]) => {
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/v1/sessions/${id}/live?results=geometry`);
  socket.binaryType = "arraybuffer";
  const heard = {types: [], acks: [], numResults: 0, text: "", done: null, code: null};
  const bytes = Uint8Array.from(atob(pixels), c => c.charCodeAt(0));
  const push = (number) => {
    const fields = new TextEncoder().encode(JSON.stringify({width, height, time_s: number / 10}));
    const message = new Uint8Array(16 + fields.length + bytes.length), head = new DataView(message.buffer);
    head.setUint8(0, 1);
    head.setUint16(2, fields.length, true);
    head.setUint32(4, number, true);
    message.set(fields, 16);
    message.set(bytes, 16 + fields.length);
    socket.send(message);
  };
  await new Promise((resolve, reject) => {
    socket.onerror = () => reject(new Error("the socket failed"));
    socket.onclose = (event) => { heard.code = event.code; resolve(); };
    socket.onmessage = ({data}) => {
      if (data instanceof ArrayBuffer) { heard.numResults += new DataView(data).getUint8(0) === 2; return; }
      const event = JSON.parse(data);
      heard.types.push(event.type);
      if (event.type === "session.updated") push(0);
      if (event.type === "input_frame.ack") {
        heard.acks.push(event.sequence);
        if (event.sequence + 1 < numFrames) push(event.sequence + 1);
        else socket.send(JSON.stringify({type: "response.create", question}));
      }
      if (event.type === "response.output_text.delta") heard.text += event.text;
      if (event.type === "response.output_text.done") { heard.done = event.text; socket.close(1000); }
    };
  });
  return heard;
}
"""


def test_a_browser_s_own_socket_pushes_and_asks(server: ServerProcess, frames: list[VideoFrame], browser: Any) -> None:
    picture = frames[0].image
    assert picture is not None
    id = server.call("POST", "/v1/sessions", {"memory": "40MB"}).record["id"]
    with browser.new_page() as page:
        page.goto(f"{server.url}/health")
        pixels = base64.b64encode(picture.tobytes()).decode()
        heard = page.evaluate(PAGE_PROGRAM, [id, 126, 98, pixels, 10, QUESTION])
    assert heard["acks"] == list(range(10))
    assert heard["numResults"] == 10
    assert heard["text"] == heard["done"] != ""
    assert heard["code"] == 1000
    assert "error" not in heard["types"]
    assert server.call("GET", f"/v1/sessions/{id}").record["num_frames"] == 10
