"""What endpoints ask for by type: the parts that `main` put on the application when it was made.

The functions are async although they wait for nothing: FastAPI calls others in a thread, once for each request.
"""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from drumline.contracts.suggestions import nearest
from drumline_server.clock import Clock
from drumline_server.db import Database
from drumline_server.errors import InvalidRequestError
from drumline_server.settings import Settings

if TYPE_CHECKING:
    from drumline_server.bundles.blobs import BlobStore
    from drumline_server.bundles.reading import Reading
    from drumline_server.live.hub import Hub


async def get_database(connection: HTTPConnection) -> Database:
    """The database: `await database.read(fn)` and `await database.write(fn)`."""
    database: Database = connection.app.state.database
    return database


async def get_settings(connection: HTTPConnection) -> Settings:
    """The settings that the server was started with."""
    settings: Settings = connection.app.state.settings
    return settings


async def get_clock(connection: HTTPConnection) -> Clock:
    """The server's clock."""
    clock: Clock = connection.app.state.clock
    return clock


async def get_blobs(connection: HTTPConnection) -> "BlobStore":
    """The store of bundles, by content."""
    blobs: BlobStore = connection.app.state.blobs
    return blobs


async def get_reading(connection: HTTPConnection) -> "Reading":
    """The child processes that read programs."""
    reading: Reading = connection.app.state.reading
    return reading


async def get_live(connection: HTTPConnection) -> "Hub":
    """The hub that feeds the streams."""
    hub: Hub = connection.app.state.live
    return hub


async def require_known_query(request: Request) -> None:
    """Raises InvalidRequestError for a parameter that the endpoint does not have: a misspelt filter would show all."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            message = f"has no parameter {name[:60]!r}{nearest(name, known)}; it takes {', '.join(known)}"
            raise InvalidRequestError("query", message)


DatabaseDep = Annotated[Database, Depends(get_database)]
SettingsDep = Annotated[Settings, Depends(get_settings)]
ClockDep = Annotated[Clock, Depends(get_clock)]
KnownQuery = Annotated[None, Depends(require_known_query)]
"""Of an endpoint with filters, behind its principal: who may not ask learns nothing."""
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Names this submission: the same key and body give the same run, however often it is sent.",
    ),
]
