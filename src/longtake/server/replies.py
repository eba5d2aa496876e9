"""Replies of JSON, as terminals and programs that read lines want them."""

from typing import Any

from fastapi.responses import JSONResponse


class JsonReply(JSONResponse):
    """Ends with a newline, so that what a shell prints next begins a line of its own."""

    def render(self, content: Any) -> bytes:
        return super().render(content) + b"\n"
