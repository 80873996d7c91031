"""What the store of content holds, and for how long: bundles, artifacts of runs, large media and files of profiles.

Bundles that nothing names are marked, and swept after a grace period.

A bundle is named by a version of a job that has a run or is the job's current one; a recent plan keeps it too. A mark
is no more than a time since when nothing was seen to name it: what names it is looked up again, with the row locked,
before the row is deleted. A submission takes the mark away, an upload or a look at the bundle renews it, each by an
UPDATE of the same row: of it and a sweep at the same moment one comes first, and the other sees that. Bytes are removed
after their row. Where a server dies between the two, they are strays, which a later round removes.

An artifact is ARRIVING from when its member told of it until its bytes are there (STORED), or it is seen that they
never come (LOST). Its row goes with its run; its bytes are strays then, unless a row of the same content names them.

Media and files of profiles come by telemetry, into rows. Large ones are moved afterwards: stored first, then named in
an UPDATE that takes the bytes from the row. Where a server dies between the two, the file is a stray.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import SecretStr
from sqlalchemy import ColumnElement, Text, exists, func, or_, select, text, tuple_, type_coerce, update
from sqlalchemy.orm import Session

from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import ArtifactState
from drumline_server.base.errors import DatabaseUnavailableError, DrumlineError, NotFoundError
from drumline_server.base.settings import Clock, Settings
from drumline_server.lifecycle.guard import lock_member, require_key
from drumline_server.storage import blobs
from drumline_server.storage.blob_files import is_note
from drumline_server.storage.blobs import MOVED, Key, Large, Moved, find_large, open_store, read_large
from drumline_server.storage.database import Database
from drumline_server.storage.history import lock_run, record_event
from drumline_server.storage.models import Artifact, Bundle, Job, JobVersion, Plan, Run
from drumline_server.storage.models.base import is_large
from drumline_server.storage.runs import KEPT_US

log = logging.getLogger(__name__)
FIRST: Key = ("", "")
_MARKED_AT_ONCE = 200
_SWEPT_AT_ONCE = 20
_LOOKED_UP_AT_ONCE = 500


def is_named() -> ColumnElement[bool]:
    """Whether a version that is current, or has a run, names the bundle of the row."""
    current = exists().where(Job.id == JobVersion.job_id, Job.current_version == JobVersion.number)
    has_run = exists().where(Run.version_id == JobVersion.id, Run.deleted_at.is_(None))
    same = JobVersion.bundle == Bundle.sha256, JobVersion.project_id == Bundle.project_id
    return exists().where(*same, or_(current, has_run))


@dataclass(frozen=True, slots=True)
class Marks:
    """Bundles that nothing names and that have no mark yet; and behind which the next ones are looked for."""

    unnamed: Sequence[Key]
    border: Key | None
    """None where there are no more."""


def find_unnamed(session: Session, after: Key) -> Marks:
    """Looks at some bundles behind the border."""
    key = Bundle.project_id, Bundle.sha256
    query = select(*key, ~is_named() & Bundle.unnamed_since.is_(None)).where(tuple_(*key) > tuple_(*after))
    rows = session.execute(query.order_by(*key).limit(_MARKED_AT_ONCE)).all()
    unnamed = [(project_id, sha256) for project_id, sha256, found in rows if found]
    return Marks(unnamed, (rows[-1][0], rows[-1][1]) if len(rows) == _MARKED_AT_ONCE else None)


def mark_unnamed(session: Session, unnamed: Sequence[Key], *, now: int) -> None:
    """Begins the grace period of bundles. One that was named meanwhile loses the mark when it would be swept."""
    blobs.mark_bundles(session, unnamed, now)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a part of a sweep looked at, and the locations of which no bundle is left."""

    looked_at: int
    locations: Sequence[str]


def sweep_part(session: Session, *, grace_period_us: int, now: int) -> Swept:
    """Deletes the rows of some bundles that nothing has named for the grace period; their locations may be removed."""
    due = select(Bundle).where(Bundle.unnamed_since < now - grace_period_us)
    due = due.order_by(Bundle.unnamed_since, Bundle.project_id, Bundle.sha256).limit(_SWEPT_AT_ONCE)
    locked = due.with_for_update(skip_locked=True)
    rows = session.scalars(locked, execution_options={"populate_existing": True}).all()
    # Asked again now that they are locked: what names one was stored before, or waits and will not find it.
    named = _named_among(session, rows)
    freed: list[Bundle] = []
    for row in rows:
        key = row.project_id, row.sha256
        if key in named:
            blobs.mark_bundles(session, [key], None)
        elif _is_planned(session, row, now):
            blobs.mark_bundles(session, [key], now)
        else:
            session.delete(row)
            freed.append(row)
    session.flush()
    free = [blobs.location_of(row) for row in freed if not blobs.is_location_named(session, row.sha256, row.location)]
    return Swept(len(rows), sorted({*free}))


def _named_among(session: Session, rows: Sequence[Bundle]) -> set[Key]:
    keys = [(row.project_id, row.sha256) for row in rows]
    query = select(Bundle.project_id, Bundle.sha256).where(tuple_(Bundle.project_id, Bundle.sha256).in_(keys))
    return {(project_id, sha256) for project_id, sha256 in session.execute(query.where(is_named()))} if keys else set()


def _is_planned(session: Session, row: Bundle, now: int) -> bool:
    query = select(Plan.id).where(Plan.project_id == row.project_id, Plan.created_at >= now - KEPT_US)
    return session.scalar(query.where(type_coerce(Plan.request, Text).contains(f'"{row.sha256}"')).limit(1)) is not None


def strays(session: Session, old: Mapping[str, Sequence[str]]) -> list[str]:
    """Those of some old files, given by digest, that no bundle needs."""
    named = blobs.named_locations(session, list(old))
    return [
        location
        for digest, locations in old.items()
        for location in locations
        if (digest not in named if is_note(location) else location not in named.get(digest, ()))
    ]


_AWAITED_US = 86_400 * 1_000_000
"""A host that neither sends nor asks for so long sends no more: unfinished uploads are swept then too."""
_LOST_AT_ONCE = 20
_SILENT = "Its host did not send it within a day."


@dataclass(frozen=True, slots=True)
class ArtifactTerms:
    """What artifacts are stored: none that is larger, and of a project so much in all."""

    most_bytes: int
    project_bytes: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A content that a host's member has kept, and who speaks of it."""

    host_id: str
    member_id: str
    sha256: str
    key: SecretStr | None


def look_at(
    session: Session, kept: Kept, terms: ArtifactTerms, *, received_bytes: int | None, now: int
) -> Artifact | None:
    """An artifact that waits for the content, else one that did; None where the member told of none.

    What the project has stored already is stored with it; what may not be stored is lost. Notes how much is there.
    Raises NotFoundError; DrumlineError fenced as `require_key`.
    """
    locked = lock_member(session, kept.host_id, kept.member_id)
    require_key(locked, kept.key)
    rows = _artifacts_of(session, kept)
    for row in rows:
        if row.state == ArtifactState.ARRIVING:
            if received_bytes is not None:
                row.received_bytes = received_bytes
            row.touched_at = now
            session.flush()
            if row.received_bytes == 0:
                _settle_at_once(session, row, terms, now=now)
    return min(rows, key=lambda row: (row.state != ArtifactState.ARRIVING, row.id), default=None)


def _artifacts_of(session: Session, kept: Kept) -> Sequence[Artifact]:
    query = select(Artifact).where(Artifact.member_id == kept.member_id, Artifact.sha256 == kept.sha256)
    return session.scalars(query.order_by(Artifact.id), execution_options={"populate_existing": True}).all()


def _settle_at_once(session: Session, row: Artifact, terms: ArtifactTerms, *, now: int) -> None:
    refusal = _refusal(session, row, terms)
    if refusal is not None:
        _settle(session, row, ArtifactState.LOST, now=now, reason=refusal)
        return
    same = select(Artifact).where(Artifact.sha256 == row.sha256, Artifact.project_id == row.project_id)
    same = same.where(Artifact.state == ArtifactState.STORED, Artifact.size_bytes == row.size_bytes)
    # Its row is kept from being deleted meanwhile: what a row names is named at every moment, and no stray.
    found = session.scalar(same.limit(1).with_for_update(read=True, key_share=True, skip_locked=True))
    if found is not None:
        _settle(session, row, ArtifactState.STORED, now=now, location=found.location)


def _refusal(session: Session, row: Artifact, terms: ArtifactTerms) -> str | None:
    if row.size_bytes > terms.most_bytes:
        return (
            f"It has {row.size_bytes} bytes; at most {terms.most_bytes} are taken. "
            "Save less, or have DRUMLINE_ARTIFACT_BYTES set higher."
        )
    earlier = select(func.coalesce(func.sum(Artifact.size_bytes), 0)).where(
        Artifact.project_id == row.project_id, Artifact.id < row.id, Artifact.state != ArtifactState.LOST
    )
    used = int(session.execute(earlier.where(Artifact.size_bytes <= terms.most_bytes)).scalar_one())
    if used + row.size_bytes <= terms.project_bytes:
        return None
    return (
        f"The project's artifacts take {used} bytes; with these {row.size_bytes} they would take more than the "
        f"{terms.project_bytes} that a project may store. Delete runs, or have "
        "DRUMLINE_PROJECT_ARTIFACT_BYTES set higher."
    )


def _settle(session: Session, row: Artifact, state: ArtifactState, *, now: int, **columns: str | None) -> bool:
    """Whether the artifact still was on its way. Only here its state changes; a run's end is its last event."""
    known = update(Artifact).where(Artifact.id == row.id, Artifact.state == ArtifactState.ARRIVING)
    values = {"state": state, "touched_at": now, **columns}
    if state == ArtifactState.STORED:
        values |= {"stored_at": now, "received_bytes": row.size_bytes}
    changed = session.execute(known.values(**values), execution_options={"synchronize_session": False})
    session.refresh(row)
    if not changed.rowcount:  # type: ignore[attr-defined] # of an UPDATE
        return False
    if session.scalar(select(Run.id).where(Run.id == row.run_id, Run.ended_at.is_(None))) is not None:
        body = {"names": [row.name], "count": 1, "state": state}
        record_event(session, row.run_id, "artifact", body, now=now, attempt_id=row.attempt_id)
    return True


def keep(session: Session, kept: Kept, location: str, *, now: int) -> bool:
    """The content is stored there, with all artifacts of the member that waited for it; whether any did."""
    try:
        locked = lock_member(session, kept.host_id, kept.member_id)
    except NotFoundError:
        return False
    require_key(locked, kept.key)
    rows = _artifacts_of(session, kept)
    return any([_settle(session, row, ArtifactState.STORED, now=now, location=location) for row in rows])


def lose(session: Session, kept: Kept, reason: str, *, now: int) -> None:
    """The artifacts of the member that wait for the content get none."""
    locked = lock_member(session, kept.host_id, kept.member_id)
    require_key(locked, kept.key)
    for row in _artifacts_of(session, kept):
        _settle(session, row, ArtifactState.LOST, now=now, reason=reason)


def lose_rest(
    session: Session, host_id: str, member_id: str, terms: ArtifactTerms, *, key: SecretStr | None, now: int
) -> None:
    """The host has told all of the member, and has no more bytes: what still waits for some is lost.

    Of one content that the member kept twice the second may have come after the first was sent, and is there.
    """
    locked = lock_member(session, host_id, member_id)
    require_key(locked, key)
    query = select(Artifact).where(Artifact.member_id == member_id, Artifact.state == ArtifactState.ARRIVING)
    for row in session.scalars(query.order_by(Artifact.id)).all():
        _settle_at_once(session, row, terms, now=now)
        _settle(session, row, ArtifactState.LOST, now=now, reason="Its host no longer has it.")


def lose_overdue(session: Session, *, now: int) -> int:
    """Some artifacts of which their hosts have not been heard for a day are lost; how many."""
    query = select(Artifact).where(Artifact.state == ArtifactState.ARRIVING, Artifact.touched_at < now - _AWAITED_US)
    rows = session.scalars(query.order_by(Artifact.run_id, Artifact.id).limit(_LOST_AT_ONCE)).all()
    for row in rows:
        lock_run(session, row.run_id)  # before its artifact, as all others do
        _settle(session, row, ArtifactState.LOST, now=now, reason=_SILENT)
    return len(rows)


_DAY_US = _AWAITED_US
"""Files that are younger may be named by an upload that is under way."""


class BundleSweep:
    """Marks bundles that nothing names, deletes those whose grace period is over, and removes files that no row names.

    Each transaction is short, and between two of them others write. Files are listed a folder at a time.
    """

    def __init__(self, database: Database, settings: Settings, clock: Clock, guard: Callable[[Session], None]) -> None:
        """`guard` is called in each transaction, and raises where another server sweeps now."""
        self._database = database
        self._blobs = open_store(settings)
        self._grace_us = settings.bundle_grace_days * _DAY_US
        self._clock = clock
        self._guard = guard

    async def round(self) -> None:
        """Looks at all bundles, and at all files that are older than a day."""
        after: Key | None = FIRST
        while after is not None:
            found = await self._database.read(partial(find_unnamed, after=after))
            if found.unnamed:
                await self._database.write(partial(self._mark, unnamed=found.unnamed))
            after = found.border
        while (swept := await self._database.write(self._sweep)).looked_at:
            await self._remove(swept.locations)
        while await self._database.write(self._lose_overdue):
            pass
        before_us = self._clock.now() - _DAY_US
        await self._blobs.remove_old_incoming(before_us)
        for folder in await self._blobs.folders():
            files = [*(await self._blobs.old_files(folder, before_us)).items()]
            for begin in range(0, len(files), _LOOKED_UP_AT_ONCE):
                old = dict(files[begin : begin + _LOOKED_UP_AT_ONCE])
                await self._remove(await self._database.read(partial(strays, old=old)))

    def _mark(self, session: Session, unnamed: Sequence[Key]) -> None:
        self._guard(session)
        mark_unnamed(session, unnamed, now=self._clock.now())

    def _sweep(self, session: Session) -> Swept:
        self._guard(session)
        return sweep_part(session, grace_period_us=self._grace_us, now=self._clock.now())

    def _lose_overdue(self, session: Session) -> int:
        self._guard(session)
        return lose_overdue(session, now=self._clock.now())

    async def _remove(self, locations: Sequence[str]) -> None:
        for location in locations:
            await self._blobs.remove(location)


def put_in_store(session: Session, large: Large, sha256: str, location: str, *, is_known: bool) -> bool:
    """The row names what the store has there, and holds it no more; whether it still did.

    A location that is known already stays named: another row of the project is kept from being deleted meanwhile.
    """
    moved, columns = large.moved, large.moved.table.c
    if is_known:
        same = large.find_same(sha256).where(columns.location == location)
        if session.scalar(same.with_for_update(read=True, key_share=True, skip_locked=True)) is None:
            return False
    values = {"sha256": sha256, "location": location, moved.column: b"", moved.size: len(large.content)}
    known = update(moved.table).where(columns.id == large.id, text(is_large(moved.column)))
    return bool(session.execute(known.values(**values)).rowcount)  # type: ignore[attr-defined] # of an UPDATE


class ContentMove:
    """Moves large contents from rows into the store, one after the other; each transaction holds one row.

    A store that is away leaves rows as they are, and is asked again in the next round.
    """

    def __init__(self, database: Database, settings: Settings, guard: Callable[[Session], None]) -> None:
        """`guard` as of BundleSweep."""
        self._database = database
        self._blobs = open_store(settings)
        self._guard = guard
        self._is_away = False

    async def round(self) -> None:
        """Moves what there is, and rests as long as each took: others write in between."""
        now = asyncio.get_running_loop().time
        try:
            for moved in MOVED:
                while rows := await self._database.read(partial(find_large, moved=moved)):
                    for row_id in rows:
                        began = now()
                        await self._move(moved, row_id)
                        await asyncio.sleep(now() - began)
        except DrumlineError as error:
            if isinstance(error, DatabaseUnavailableError) or error.code != ProblemCode.UNAVAILABLE:
                raise
            if not self._is_away:
                log.warning("media and profiles wait in the database for their store: %s", error)
            self._is_away = True
        else:
            self._is_away = False

    async def _move(self, moved: Moved, row_id: str) -> None:
        large = await self._database.read(partial(read_large, moved=moved, row_id=row_id))
        if large is None:  # deleted with its run
            return
        sha256 = f"sha256:{hashlib.sha256(large.content).hexdigest()}"
        known = await self._database.read(lambda session: session.scalar(large.find_same(sha256)))
        if known is not None and await self._blobs.has(known) and await self._put(large, sha256, known, True):
            return
        self._blobs.require_room()
        with self._blobs.incoming() as file:
            await asyncio.to_thread(file.write, large.content)
            location = await self._blobs.keep(file, sha256)
        if not await self._put(large, sha256, location, False):
            await self._blobs.remove(location)

    async def _put(self, large: Large, sha256: str, location: str, is_known: bool) -> bool:
        def put(session: Session) -> bool:
            self._guard(session)
            return put_in_store(session, large, sha256, location, is_known=is_known)

        return await self._database.write(put)
