"""What a member logs that is too large for its row, moved into the store of content and read back."""

import asyncio
import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline import Client
from drumline_server.base.settings import Settings
from drumline_server.lifecycle.stored import ContentMove
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.storage.blobs import MOVED
from drumline_server.storage.models import Media, Profile
from support.core import Core, Member
from support.edge import EdgeServer
from support.pictures import gray_png

_SOURCE = random.Random(7)
PICTURES = [gray_png(200, 200, _SOURCE.randbytes(40_000)) for _ in range(3)]
"""Of 40 kB each: noise gets no shorter."""
NOTE = _SOURCE.randbytes(32_000).hex()
ROWS = [[_SOURCE.randbytes(100).hex() for _ in range(4)] for _ in range(100)]
ZIP = b"PK\x03\x04" + _SOURCE.randbytes(60_000)
LARGE = len(PICTURES) + 3
"""How many of `log_all` belong into the store."""


def running(core: Core, host: str = "alpha", **changes: Any) -> Member:
    """A member of a run of its own, on a new host, which it fills."""
    worker = core.add_worker(host)
    core.submit(**{"resources": {"replicas": 8}, **changes})
    core.schedule()
    return worker.take().start()


def log_picture(member: Member, step: int, png: bytes = PICTURES[0]) -> None:
    """As of `run.log(picture=drumline.Image(...))`."""
    value = {"kind": "image", "png": base64.b64encode(png).decode()}
    member.send(member.event("media", name="picture", step=step, value=value))


def log_all(member: Member) -> None:
    """Pictures, a long text and table, a traced step with its file, and a text that is short."""
    for step, png in enumerate(PICTURES):
        log_picture(member, step, png)
    texts = {"note": NOTE, "small": "short"}
    for name, value in texts.items():
        member.send(member.event("media", name=name, step=1, value={"kind": "text", "text": value}))
    table = {"kind": "table", "columns": ["a", "b", "c", "d"], "rows": ROWS}
    member.send(member.event("media", name="rows", step=1, value=table))
    file = {"file": base64.b64encode(ZIP).decode(), "file_bytes": len(ZIP)}
    member.send(member.event("profile", step=1, call=1, **file))


def require_all(server: EdgeServer, run: str, directory: Path) -> None:
    """Reads everything of `log_all` by SDK, CLI's way of saving included, and compares it byte for byte."""
    with Client(server.url, server.admin_token) as client:
        found = client.get(run)
        media = found.media()
        assert [one.png for one in media.values("picture")] == PICTURES
        assert [one.text for name in ("note", "small") for one in media.values(name)] == [NOTE, "short"]
        assert [one.rows for one in media.values("rows")] == [ROWS]
        (profile,) = found.profiles()
        profile.save(directory / "file.zip")
    assert (directory / "file.zip").read_bytes() == ZIP


def move(core: Core, data_dir: Path, guard: Callable[[Session], None] | None = None, *, store: str = "") -> None:
    """A round of the leader's loop."""
    settings = Settings.model_validate({"data_dir": data_dir, "store": store})
    asyncio.run(ContentMove(core.database, settings, guard or SoleServer().guard).round())


class KilledError(Exception):
    """The server ends here."""


def dying(after: int) -> Callable[[Session], None]:
    """A guard under which the server dies between a file and its row, once so many were moved."""
    left = iter(range(after))

    def guard(_: Session) -> None:
        if next(left, None) is None:
            raise KilledError

    return guard


def waiting(core: Core) -> int:
    """How many rows hold large contents themselves."""
    counts = [
        select(func.count()).select_from(each.table).where(func.length(each.table.c[each.column]) > 10_000)
        for each in MOVED
    ]
    return core.read(lambda session: sum(session.scalar(each) or 0 for each in counts))


def locations(core: Core) -> list[str]:
    """Those that rows name, with each as often as it is named."""
    queries = [select(table.location).where(table.location.is_not(None)) for table in (Media, Profile)]
    return core.read(lambda session: sorted(str(each) for query in queries for each in session.scalars(query)))


def files(data_dir: Path) -> list[str]:
    """Contents in the directory."""
    blobs = data_dir / "blobs"
    return sorted(str(each.relative_to(blobs)) for each in blobs.glob("[0-9a-f][0-9a-f]/*-*"))
