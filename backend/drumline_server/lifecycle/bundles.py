"""Which bundles are kept, and how the others go: marked once nothing names them, swept after a grace period.

A bundle is named by a version of a job that has a run or is the job's current one; a recent plan keeps it too. A mark
is no more than a time since when nothing was seen to name it: what names it is looked up again, with the row locked,
before the row is deleted. A submission takes the mark away, an upload or a look at the bundle renews it, each by an
UPDATE of the same row: of it and a sweep at the same moment one comes first, and the other sees that. Bytes are removed
after their row. Where a server dies between the two, they are strays, which a later round removes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import ColumnElement, Text, exists, or_, select, tuple_, type_coerce, update
from sqlalchemy.orm import Session

from drumline_server.base.errors import NotFoundError
from drumline_server.base.settings import Clock, Settings
from drumline_server.storage import blobs
from drumline_server.storage.blob_files import is_note
from drumline_server.storage.blobs import open_store
from drumline_server.storage.database import Database
from drumline_server.storage.models import Bundle, Job, JobVersion, Plan, Run
from drumline_server.storage.runs import KEPT_US

Key = tuple[str, str]
"""Project and digest of a bundle."""
FIRST: Key = ("", "")
_MARKED_AT_ONCE = 200
_SWEPT_AT_ONCE = 20
_RENEWED_AFTER_US = 3_600 * 1_000_000
"""A mark that is no older need not be renewed by who only looks: the grace period is a day at least."""


def is_named() -> ColumnElement[bool]:
    """Whether a version that is current, or has a run, names the bundle of the row."""
    current = exists().where(Job.id == JobVersion.job_id, Job.current_version == JobVersion.number)
    has_run = exists().where(Run.version_id == JobVersion.id, Run.deleted_at.is_(None))
    same = JobVersion.bundle == Bundle.sha256, JobVersion.project_id == Bundle.project_id
    return exists().where(*same, or_(current, has_run))


def name_bundle(session: Session, project_id: str, sha256: str) -> Bundle:
    """The bundle, for a transaction that names it: no sweep takes it any more. Raises NotFoundError."""
    row = blobs.find_bundle(session, project_id, sha256)
    if row is not None and (row.unnamed_since is None or _mark(session, [(project_id, sha256)], None)):
        return row
    raise gone(session, project_id, sha256)


def needs_renewal(row: Bundle, *, now: int) -> bool:
    """Whether who is told that the bundle is there has to renew its mark first."""
    return row.unnamed_since is not None and row.unnamed_since < now - _RENEWED_AFTER_US


def renew_bundle(session: Session, project_id: str, sha256: str, *, now: int) -> bool:
    """Has the grace period of a bundle that nothing names begin again. False where the bundle is gone."""
    row = blobs.find_bundle(session, project_id, sha256)
    if row is None or row.unnamed_since is None:
        return row is not None
    return _mark(session, [(project_id, sha256)], now) > 0


def gone(session: Session, project_id: str, sha256: str) -> NotFoundError:
    """That the project does not have the bundle: never, or no longer."""
    query = select(JobVersion.id).where(JobVersion.bundle == sha256, JobVersion.project_id == project_id)
    if session.scalar(query.limit(1)) is None:
        return NotFoundError("bundle", sha256)
    return NotFoundError(
        "bundle",
        sha256,
        detail=f"The bundle {sha256} was deleted: all runs with it were, and it is no job's current version.",
        hint="Upload the same program again: POST /api/v1/bundles.",
    )


def _mark(session: Session, keys: Iterable[Key], at: int | None) -> int:
    changed = update(Bundle).where(tuple_(Bundle.project_id, Bundle.sha256).in_(list(keys))).values(unnamed_since=at)
    result = session.execute(changed, execution_options={"synchronize_session": False})
    return int(result.rowcount)  # type: ignore[attr-defined] # of an UPDATE


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
    _mark(session, unnamed, now)


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
            _mark(session, [key], None)
        elif _is_planned(session, row, now):
            _mark(session, [key], now)
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


_DAY_US = 86_400 * 1_000_000
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
        before_us = self._clock.now() - _DAY_US
        await self._blobs.remove_old_incoming(before_us)
        for folder in await self._blobs.folders():
            old = await self._blobs.old_files(folder, before_us)
            if old:
                await self._remove(await self._database.read(partial(strays, old=old)))

    def _mark(self, session: Session, unnamed: Sequence[Key]) -> None:
        self._guard(session)
        mark_unnamed(session, unnamed, now=self._clock.now())

    def _sweep(self, session: Session) -> Swept:
        self._guard(session)
        return sweep_part(session, grace_period_us=self._grace_us, now=self._clock.now())

    async def _remove(self, locations: Sequence[str]) -> None:
        for location in locations:
            await self._blobs.remove(location)
