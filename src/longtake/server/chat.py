"""Questions as OpenAI's clients ask them: a chat completion about a session, whole or as it comes."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from longtake.server.events import SessionEvent
from longtake.server.problems import RequestError
from longtake.server.session import ServedSession

_FINISH = {"stop": "stop", "length": "length", "refused": "stop"}
_LAST_TYPES = ("response.output_text.done", "response.cancelled", "error")


class ChatPart(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(extra="ignore")
    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message of the conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ChatPart] | None = None

    @property
    def is_text(self) -> bool:
        return not isinstance(self.content, list) or all(part.type == "text" for part in self.content)

    @property
    def words(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text)
        return self.content or ""


class StreamOptions(BaseModel):
    """What is told beside the words."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class ChatRequest(BaseModel):
    """A question about a session; of what else OpenAI's clients send, all is ignored but what would be missed."""

    model_config = ConfigDict(extra="ignore")
    session_id: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = Field(default=0.0, ge=0.0, le=100.0)
    max_tokens: int | None = Field(default=None, ge=1, le=100_000)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=100_000)
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    n: int | None = None

    @property
    def question(self) -> str:
        """The last user message."""
        asked = [message for message in self.messages if message.role == "user"]
        if not asked:
            raise RequestError("bad_question", "Expected a message of the role user.")
        if not asked[-1].is_text:
            raise RequestError(
                "unsupported_parameter", "Expected a message of text alone: pictures come to a session as its frames."
            )
        return asked[-1].words

    def require_answerable_by(self, model: str | None) -> None:
        """Refuse, as OpenAI does, another model than the session's, and what its plain words would leave out."""
        if model is not None and self.model not in (None, model):
            raise RequestError(
                "model_not_found",
                f"There is no model {self.model!r:.80} in this session, which answers with {model}; name that one.",
                status=404,
            )
        is_text = self.response_format in (None, {"type": "text"})
        missed = {
            "tools": bool(self.tools),
            "functions": bool(self.functions),
            "response_format": not is_text,
            "logprobs": bool(self.logprobs),
            "n": self.n not in (None, 1),
        }
        for name in (name for name, is_missed in missed.items() if is_missed):
            raise RequestError(
                "unsupported_parameter",
                f"Unsupported parameter: {name} has no meaning here, where a question gets one answer in plain words; "
                "leave it out.",
            )


class Completion:
    """One question under way."""

    def __init__(self, session: ServedSession, request: ChatRequest) -> None:
        request.require_answerable_by(session.record.spec.language)
        self._session, self._request = session, request
        self._id, self._created_s = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())

    async def whole(self) -> dict[str, Any]:
        answer = await asyncio.wrap_future(self._ask())
        message = {"role": "assistant", **_said(answer)}
        choice = {"index": 0, "message": message, "finish_reason": _FINISH[answer["ending"]], "logprobs": None}
        base = self._base("chat.completion")
        return {**base, "choices": [choice], "usage": _usage(answer), "longtake": _about(answer)}

    async def begin(self) -> AsyncIterator[str]:
        """Lines of a stream of events; a question that is refused at once raises before the first."""
        loop, coming = asyncio.get_running_loop(), asyncio.Queue[SessionEvent]()

        def hear(event: SessionEvent) -> None:
            if event.fields.get("response") == self._id:
                loop.call_soon_threadsafe(coming.put_nowait, event)

        self._session.events.listen(hear)
        try:
            self._ask()
        except BaseException:
            self._session.events.stop_listening(hear)
            raise
        return self._lines(coming, hear)

    async def _lines(self, coming: asyncio.Queue[SessionEvent], hear: Any) -> AsyncIterator[str]:
        try:
            yield self._line({"role": "assistant", "content": ""})
            words: list[str] = []
            while (event := await coming.get()).type not in _LAST_TYPES:
                if event.type == "response.output_text.delta":
                    words.append(event.fields["text"])
                    for delta in _deltas(words):
                        yield self._line(delta)
            if event.type == "response.output_text.done" and len(words) < 2:
                yield self._line(_said(event.fields))
            yield self._last_line(event)
            options = self._request.stream_options
            if options is not None and options.include_usage and event.type == "response.output_text.done":
                yield self._data({"choices": [], "usage": _usage(event.fields)})
            yield "data: [DONE]\n\n"
        finally:
            self._session.events.stop_listening(hear)
            self._session.cancel(self._id)

    def _ask(self) -> Any:
        return self._session.ask(
            self._id,
            self._request.question,
            temperature=self._request.temperature,
            max_tokens=self._request.max_completion_tokens or self._request.max_tokens,
        )

    def _base(self, kind: str) -> dict[str, Any]:
        model = self._session.record.spec.language
        return {"id": self._id, "object": kind, "created": self._created_s, "model": model}

    def _line(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return self._data({"choices": [choice], **more})

    def _data(self, fields: dict[str, Any]) -> str:
        return f"data: {json.dumps({**self._base('chat.completion.chunk'), **fields})}\n\n"

    def _last_line(self, event: SessionEvent) -> str:
        if event.type == "response.output_text.done":
            return self._line({}, _FINISH[event.fields["ending"]], longtake=_about(event.fields))
        problem = {"code": event.fields.get("code", "cancelled"), "message": event.fields.get("message", "Given up.")}
        return f"data: {json.dumps({'error': problem})}\n\n"


def _said(answer: dict[str, Any]) -> dict[str, str | None]:
    """The words of an answer, or those by which the question was refused, where OpenAI's clients look for each."""
    is_refused = answer["refusal"] is not None
    return {"content": None if is_refused else answer["text"], "refusal": answer["text"] if is_refused else None}


def _deltas(words: list[str]) -> list[dict[str, str]]:
    """What is told with the newest of these words; the first waits for the second, for a refusal is one alone."""
    first, newest = {"content": words[0]}, {"content": words[-1]}
    match len(words):
        case 1:
            return []
        case 2:
            return [first, newest]
    return [newest]


def _usage(answer: dict[str, Any]) -> dict[str, int]:
    """Tokens that the answer was made from, those of the video that are remembered and of the question, and its own."""
    prompt, completion = answer["prompt_tokens"], len(answer["ids"])
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _about(answer: dict[str, Any]) -> dict[str, Any]:
    """What longtake says beside the text."""
    names = ("seen_until_s", "evidence", "pose", "timing")
    return {name: answer[name] for name in names}
