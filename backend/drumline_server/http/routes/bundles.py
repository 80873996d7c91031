"""`/bundles`: uploading programs and looking into them."""

from typing import Annotated

from fastapi import Query, Request, Response, status

from drumline.contracts import api
from drumline.contracts.ids import Sha256
from drumline_server.base.callers import Principal
from drumline_server.base.errors import InvalidRequestError
from drumline_server.http.dependencies import (
    LARGE,
    AppDep,
    ReaderDep,
    SubmitterDep,
    api_router,
)
from drumline_server.http.json_bodies import cut
from drumline_server.http.request_context import AppState
from drumline_server.services import bundles

router = api_router("/bundles", tags=["bundles"])
Filename = Annotated[
    str, Query(max_length=200, description="Name of the file, where the body is one Python file: `digits.py`.")
]
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            "text/x-python": {"schema": {"type": "string"}},
        },
    }
}


@router.post("", status_code=status.HTTP_201_CREATED, openapi_extra=_UPLOAD)
async def upload_bundle(
    *, request: Request, principal: SubmitterDep, app: AppDep, filename: Filename = "program.py"
) -> api.Bundle:
    """Stores a program: a zip, or one Python file. The same content gives the same bundle."""
    upload = bundles.Upload(
        request.headers.get("content-type", ""), filename, request.stream(), app.settings.bundle_bytes
    )
    async with app.shares.turn(request.scope, "upload"):
        return await bundles.receive(_bundles_of(app, principal), upload, principal.counts_for)


def _bundles_of(app: AppState, principal: Principal) -> bundles.ProjectBundles:
    return bundles.ProjectBundles(
        app.database,
        app.blobs,
        app.reading,
        principal.project_id,
        app.settings.project_bundle_bytes,
        principal.ref,
        app.clock,
    )


_PIECE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
Offset = Annotated[int, Query(ge=0, lt=2**40, description="Where the piece begins in the bundle, in bytes.")]
Size = Annotated[int, Query(ge=1, lt=2**40, description="Of the whole bundle, a zip, in bytes.")]


@router.get("/{sha256}/upload")
async def get_upload(sha256: Sha256, principal: SubmitterDep, app: AppDep) -> api.BundleUpload:
    """How far a program has come that is sent piece by piece by this token; whole, if the project has it."""
    return await bundles.show_upload(_bundles_of(app, principal), sha256, principal.counts_for)


@router.patch("/{sha256}/upload", openapi_extra=_PIECE)
async def continue_upload(
    *, sha256: Sha256, request: Request, principal: SubmitterDep, app: AppDep, offset: Offset, size: Size
) -> api.BundleUpload:
    """Takes a zip from byte `offset` on. What came of a request that was cut off is kept for a day."""
    limit_bytes = app.settings.bundle_bytes
    if size > limit_bytes:
        raise bundles.too_large(limit_bytes)
    piece = bundles.Piece(sha256, offset, size, request.stream())
    async with app.shares.turn(request.scope, "upload"):
        return await bundles.receive_piece(_bundles_of(app, principal), piece, principal.counts_for)


@router.post("/{sha256}/upload/address")
async def get_piece_address(
    sha256: Sha256, principal: SubmitterDep, app: AppDep, offset: Offset, size: Size
) -> api.PieceAddress:
    """Where in the object store the zip is to be sent from byte `offset` on, where `by_address` says so.

    Once all of it is there, `PATCH` with an empty body and `offset` equal to `size` stores the bundle.
    """
    if size > app.settings.bundle_bytes:
        raise bundles.too_large(app.settings.bundle_bytes)
    if offset >= size:
        raise InvalidRequestError("offset", f"{offset} is not below the size, {size}")
    project = _bundles_of(app, principal)
    return await bundles.find_piece_address(project, sha256, offset, size, principal.counts_for)


@router.get("/{sha256}")
async def get_bundle(sha256: Sha256, principal: ReaderDep, app: AppDep) -> api.Bundle:
    """A stored program with its entrypoints."""
    return await bundles.show_bundle(app.database, principal.project_id, sha256, now=app.clock.now())


@router.get("/{sha256}/source", response_model=api.BundleSource, dependencies=[LARGE])
async def get_bundle_source(sha256: Sha256, principal: ReaderDep, app: AppDep) -> Response:
    """The text files of a program, for reading and for submitting it again with changes."""
    location = await app.database.read(lambda session: bundles.locate_bundle(session, principal.project_id, sha256))
    source = await bundles.read_source(app.blobs, app.reading, location, principal.counts_for)
    return cut(source, "application/json")
