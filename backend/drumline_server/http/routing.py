"""Makes the routers of the API, whose routes have their whole paths and ask who is calling before they read a body.

A router included in another is looked through several times for each request; routes with whole paths are looked
through once.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from enum import Enum
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from drumline_server.http.dependencies import GUARDS
from drumline_server.http.gate import SAFE
from drumline_server.http.json_bodies import JsonRoute
from drumline_server.http.limits import Shares

API = "/api/v1"
Guard = Callable[[HTTPConnection], Awaitable[object]]


class GuardedRoute(JsonRoute):
    """A route whose guards (`auth.dependencies`) speak first: FastAPI reads the body before any dependency is asked.

    A few requests of a person or program that only read are worked on at once; further ones wait for their turn.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:  # Any: as FastAPI declares it
        """The handler, behind its guards."""
        handle = super().get_route_handler()
        guards = tuple(dict.fromkeys(guards_of(self.dependant)))

        async def guarded(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            if request.method not in SAFE or "principal" not in request.scope["state"]:
                return await handle(request)
            shares: Shares = request.app.state.shares
            async with shares.turn(request.scope, "read"):
                return await handle(request)

        return guarded


def guards_of(dependant: Dependant) -> Iterator[Guard]:
    """The guards that a route asks for, in the order in which it does."""
    for dependency in dependant.dependencies:
        if dependency.call in GUARDS:
            yield dependency.call
        yield from guards_of(dependency)


def api_router(prefix: str = "", *, tags: list[str | Enum] | None = None) -> APIRouter:
    """A router for the endpoints of one domain below `prefix`; their names are the names of operations."""
    return APIRouter(
        prefix=f"{API}{prefix}", tags=tags, generate_unique_id_function=_operation_id, route_class=GuardedRoute
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
