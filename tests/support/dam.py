"""An HTTP proxy before a server that lets everything through but, while it is shut, telemetry."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response

_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding"})
_DECODED = frozenset({"content-encoding"})
"""The client decodes answers."""


class Dam:
    """While it is shut, telemetry is answered 503; heartbeats and all else pass."""

    def __init__(self, target: str) -> None:
        self._client = httpx2.AsyncClient(base_url=target, timeout=60)
        self.is_shut = threading.Event()
        app = FastAPI()
        app.add_api_route("/{path:path}", self._pass, methods=["GET", "POST", "PUT", "DELETE"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        )
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve()], daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()

    async def _serve(self) -> None:
        async with self._client:
            await self._uvicorn.serve(sockets=[self._listener])

    async def _pass(self, request: Request) -> Response:
        content = await request.body()
        if self.is_shut.is_set() and request.url.path.endswith("/events"):
            return Response(status_code=503, headers={"Retry-After": "1"})
        answer = await self._client.request(
            request.method,
            request.url.path,
            params=request.query_params,
            content=content,
            headers={name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP},
        )
        headers = {name: value for name, value in answer.headers.items() if name not in _HOP_BY_HOP | _DECODED}
        return Response(answer.content, answer.status_code, headers)


@contextmanager
def dam_before(target: str) -> Iterator[Dam]:
    """A running one, open at first."""
    dam = Dam(target)
    dam.start()
    try:
        yield dam
    finally:
        dam.stop()
