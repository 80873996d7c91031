"""Makes the routers of the API, whose routes have their whole paths.

A router included in another is looked through several times for each request; routes with whole paths are looked
through once.
"""

from enum import Enum

from fastapi import APIRouter
from fastapi.routing import APIRoute

from drumline_server.edge.json_bodies import JsonRoute

API = "/api/v1"


def api_router(prefix: str = "", *, tags: list[str | Enum] | None = None) -> APIRouter:
    """A router for the endpoints of one domain below `prefix`; their names are the names of operations."""
    return APIRouter(
        prefix=f"{API}{prefix}", tags=tags, generate_unique_id_function=_operation_id, route_class=JsonRoute
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
