"""The description of the API, from which the dashboard's types are made."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from drumline.contracts.api import RunEvent, StreamHint
from drumline.contracts.problems import PROBLEM_MEDIA_TYPE, Problem
from drumline_server.base.settings import VERSION

_BEYOND_ROUTES: tuple[type[BaseModel], ...] = (Problem, RunEvent, StreamHint)
"""Models that no route answers with by itself: errors, and what the stream carries."""
_SCHEMA_REF = {"$ref": "#/components/schemas/Problem"}


def describe(app: FastAPI) -> dict[str, Any]:  # Any: OpenAPI is a document, not a type of ours
    """The OpenAPI document of `app`; every error is a Problem."""
    document = get_openapi(title="Drumline", version=VERSION, routes=app.routes, separate_input_output_schemas=True)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for model in _BEYOND_ROUTES:
        schema = model.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token: drm_pat_... or drm_wrk_..."},
        "session": {"type": "apiKey", "in": "cookie", "name": "drumline"},
    }
    document["security"] = [{"bearer": []}, {"session": []}]
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {
                "description": "An error, told in words and with a code.",
                "content": {PROBLEM_MEDIA_TYPE: {"schema": _SCHEMA_REF}},
            }
    return document
