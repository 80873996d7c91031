"""The rounds in which bundles go that nothing names: their rows, then their bytes, and files that no row names."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy.orm import Session

from drumline_server.base.settings import Clock, Settings
from drumline_server.lifecycle.bundles import FIRST, Key, Swept, find_unnamed, mark_unnamed, strays, sweep_part
from drumline_server.scheduling.leadership import Leadership
from drumline_server.storage.blobs import open_store
from drumline_server.storage.database import Database

_DAY_US = 86_400 * 1_000_000
"""Files that are younger may be named by an upload that is under way."""


class BundleSweep:
    """Marks bundles that nothing names, deletes those whose grace period is over, and removes files that no row names.

    Each transaction is short, and between two of them others write. Files are listed a folder at a time.
    """

    def __init__(self, database: Database, settings: Settings, clock: Clock, leadership: Leadership) -> None:
        self._database = database
        self._blobs = open_store(settings)
        self._grace_us = settings.bundle_grace_days * _DAY_US
        self._clock = clock
        self._leadership = leadership

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
        self._leadership.guard(session)
        mark_unnamed(session, unnamed, now=self._clock.now())

    def _sweep(self, session: Session) -> Swept:
        self._leadership.guard(session)
        return sweep_part(session, grace_period_us=self._grace_us, now=self._clock.now())

    async def _remove(self, locations: Sequence[str]) -> None:
        for location in locations:
            await self._blobs.remove(location)
