"""What an operator decides for a server."""

from dataclasses import dataclass, field
from pathlib import Path

from longtake.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, or one session, may take."""

    questions_at_once: int = 4
    """Of one session."""
    waiting_frames: int = 4
    """From one socket of a session that takes every frame; its sender waits then."""
    most_waiting_frames: int = 32
    """Of one session, from all who send to it; more are refused."""
    question_chars: int = 4_000
    expected_chars: int = 400
    """Of the answer that a standing question waits for; it is in every event about it."""
    compared_frames: int = 64
    """That are encoded anew for a comparison; of more, the newest."""
    upload_bytes: int = 4_000_000_000
    body_bytes: int = 1_000_000
    """Of any other request."""
    unread_messages: int = 1_000
    """Of one socket; a reader that is further behind is closed."""
    unread_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How sessions live."""

    folder: Path
    budget_bytes: int = 2_000_000_000
    """Of all sessions in memory."""
    session_bytes: int = 64_000_000
    """Of a session that does not say."""
    idle_s: float = 300.0
    """After which a session leaves memory."""
    spare_idle_s: float = 2.0
    """After which it may have to, where another needs the room."""
    save_every_frames: int = 32
    save_every_s: float = 30.0
    drain_s: float = 10.0
    """That frames and questions under way get when the server ends."""
    retention_s: float = 30 * 86_400.0
    """After which a session that nobody used is removed."""
    quota_bytes: int = 20_000_000_000
    """On the disk; beyond it new sessions and uploads are refused."""
    allows_addresses: bool = False
    """Whether a client may name a URL, a stream or a camera for the server to open."""
    webhook_hosts: frozenset[str] = frozenset()
    """To which standing questions may post, as `host` or `host:port`."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.save_every_frames < 1 or min(self.idle_s, self.spare_idle_s, self.save_every_s, self.retention_s) <= 0:
            raise SettingError("Expected times and frames between saves above 0.")
        if self.session_bytes > self.budget_bytes:
            raise SettingError("Expected the memory of one session within that of all; give more memory.")
