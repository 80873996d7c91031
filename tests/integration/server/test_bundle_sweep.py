"""Bundles that nothing names are deleted after a grace period, and none that somebody was told is there."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import Settings
from drumline_server.lifecycle import stored as life
from drumline_server.lifecycle.stored import BundleSweep
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.services import jobs
from drumline_server.services.bundles import store_bundle
from drumline_server.services.submit import Submission
from drumline_server.storage.blob_files import FileStore
from drumline_server.storage.blobs import bundle_bytes_of, find_bundle, renew_bundle
from support.core import BUNDLE, TESTER, Core, submission_body
from support.deletions import delete
from support.edge import EdgeServer
from support.processes import wait_until
from support.submissions import submit_one

pytestmark = pytest.mark.both_databases

V1 = "/api/v1"
DAY_S = 86_400
GRACE_US = 7 * DAY_S * 1_000_000
OTHER = "sha256:" + "cd" * 32
PYTHON = {"Content-Type": "text/x-python"}


def sweep(core: Core, directory: Path) -> None:
    """A round of the leader's loop, with the default grace period."""
    settings = Settings(data_dir=directory)
    asyncio.run(BundleSweep(core.database, settings, core.clock, SoleServer().guard).round())


def is_stored(core: Core, sha256: str = BUNDLE) -> bool:
    return core.read(lambda session: find_bundle(session, core.project_id, sha256)) is not None


def end_and_delete(core: Core, run: str) -> None:
    core.cancel(run)
    delete(core, run)


def test_what_nothing_names_goes_after_the_grace_period_and_the_rest_stays(core: Core, tmp_path: Path) -> None:
    core.add_worker()
    first = core.submit().id
    second = core.submit(job={"record": {"on_divergence": "stop"}}).id
    sweep(core, tmp_path)
    core.clock.advance(30 * DAY_S)
    sweep(core, tmp_path)
    assert is_stored(core), "runs of two versions have it"

    end_and_delete(core, first)
    end_and_delete(core, second)
    sweep(core, tmp_path)
    core.clock.advance(30 * DAY_S)
    sweep(core, tmp_path)
    assert is_stored(core), "the job's current version has it"

    core.write(partial(_store_other, core=core))
    core.submit(job={"program": {"bundle": OTHER, "entrypoint": "digits:main"}})
    sweep(core, tmp_path)
    core.clock.advance(7 * DAY_S - 60)
    sweep(core, tmp_path)
    assert is_stored(core), "the grace period began when nothing named it any more"
    core.clock.advance(120)
    sweep(core, tmp_path)
    assert not is_stored(core)
    assert core.read(lambda session: bundle_bytes_of(session, core.project_id)) == 30
    with pytest.raises(DrumlineError, match="was deleted: all runs with it were") as refused:
        core.submit()
    assert refused.value.code == "bundle_not_found"
    with pytest.raises(DrumlineError, match="was deleted"):
        core.write(lambda session: jobs.roll_back(session, core.project_id, "digits", 1, by=TESTER, now=1))


def _store_other(session: Session, core: Core) -> None:
    row = find_bundle(session, core.project_id, BUNDLE)
    assert row is not None
    packed = api.Bundle(sha256=OTHER, size_bytes=30, files=1, entrypoints=tuple(row.entrypoints))
    store_bundle(session, core.project_id, packed, by=TESTER, now=core.clock.now())


def test_bytes_go_with_the_last_project_that_has_them_and_strays_after_a_day(
    server: EdgeServer, tmp_path: Path
) -> None:
    core, blobs = server.core, tmp_path / "data" / "blobs"
    source = b"def main(run):\n    return 1\n"
    other = server.client(server.token("submitter", core.add_project("other")))
    mine, theirs = (each.post(f"{V1}/bundles", content=source, headers=PYTHON) for each in (server.admin, other))
    assert (mine.status_code, theirs.json()) == (201, mine.json())
    stored = {file for file in blobs.glob("??/*") if not file.suffix}
    assert len(stored) == 2
    row = core.read(lambda session: find_bundle(session, core.project_id, mine.json()["sha256"]))
    assert row is not None
    assert row.location is not None
    legacy, incoming = blobs / row.location[:65], blobs / "incoming" / "left"
    for stray in (legacy, incoming):
        stray.write_bytes(b"of a process that was killed")
    for file in (legacy, incoming, *stored):
        os.utime(file, (0, 0))

    sweep(core, tmp_path / "data")
    assert {file for file in blobs.glob("??/*") if not file.suffix} == stored
    assert not incoming.exists()
    core.clock.advance(8 * DAY_S)
    kept = other.get(f"{V1}/bundles/{mine.json()['sha256']}")
    sweep(core, tmp_path / "data")

    assert kept.status_code == 200
    left = {file for file in blobs.glob("??/*") if not file.suffix}
    assert (len(left), left < stored, blobs / row.location in left) == (1, True, False)
    assert server.admin.get(f"{V1}/bundles/{mine.json()['sha256']}").status_code == 404
    again = server.admin.post(f"{V1}/bundles", content=source, headers=PYTHON)
    assert again.json() == mine.json()
    assert server.admin.get(f"{V1}/bundles/{mine.json()['sha256']}/source").status_code == 200


def test_an_upload_of_a_bundle_whose_bytes_are_lost_brings_them_back(server: EdgeServer, tmp_path: Path) -> None:
    source = b"def main(run):\n    return 2\n"
    first = server.admin.post(f"{V1}/bundles", content=source, headers=PYTHON)
    for file in (tmp_path / "data" / "blobs").glob("??/*"):
        file.unlink()
    assert server.admin.get(f"{V1}/bundles/{first.json()['sha256']}/source").status_code == 404
    assert server.admin.post(f"{V1}/bundles", content=source, headers=PYTHON).json() == first.json()
    assert server.admin.get(f"{V1}/bundles/{first.json()['sha256']}/source").status_code == 200


def test_a_plan_keeps_its_bundle_for_as_long_as_it_is_kept(core: Core, tmp_path: Path) -> None:
    plan = text(
        "INSERT INTO plan (id, project_id, created_by, created_at, request, simulation, probe_state, message, output)"
        " VALUES ('pln_1', :project, 'tester', :at, :request, '{}', 'none', '', '')"
    )
    core.clock.advance(DAY_S)
    request = submission_body().model_dump_json()
    planned = {"project": core.project_id, "at": core.clock.now(), "request": request}
    core.write(lambda session: session.execute(plan, planned) and None)
    core.clock.advance(6.5 * DAY_S)
    sweep(core, tmp_path)
    assert is_stored(core)
    core.clock.advance(8 * DAY_S)
    sweep(core, tmp_path)
    assert not is_stored(core)


Act = Callable[[Core, Session], object]


def _submit(core: Core, session: Session) -> object:
    order = Submission(core.project_id, TESTER, "key", submission_body(wait_for_devices=True), "tok_1")
    return submit_one(session, order, now=core.clock.now())


def _upload(core: Core, session: Session) -> object:
    return renew_bundle(session, core.project_id, BUNDLE, now=core.clock.now())


def _sweep(core: Core, session: Session) -> object:
    return life.sweep_part(session, grace_period_us=GRACE_US, now=core.clock.now()).looked_at


@pytest.mark.parametrize("sweep_is_first", [False, True])
@pytest.mark.parametrize("act", [_submit, _upload])
def test_of_a_sweep_and_who_relies_on_the_bundle_at_the_same_moment_the_later_sees_the_other(
    core: Core, act: Act, sweep_is_first: bool
) -> None:
    core.clock.advance(8 * DAY_S)
    first, second = (_sweep, act) if sweep_is_first else (act, _sweep)
    others: list[Future[Any]] = []

    def meet(session: Session) -> object:
        outcome = first(core, session)
        others.append(pool.submit(core.write, partial(second, core)))
        if session.get_bind().dialect.name == "postgresql" and sweep_is_first:  # a sweep waits for nobody
            wait_until(partial(_met, core, others[0]), timeout_s=60, what="the other waits or is through")
        elif session.get_bind().dialect.name == "postgresql":
            others[0].result(60)
        return outcome

    with ThreadPoolExecutor(1) as pool:
        outcome = core.write(meet)
        if not sweep_is_first:
            assert others[0].result(60) == 0
            assert is_stored(core)
        elif act is _upload:
            assert (outcome, others[0].result(60)) == (1, False), "it is told to send the bytes again"
        else:
            with pytest.raises(DrumlineError, match="There is no bundle"):
                others[0].result(60)
            assert core.runs().items == ()


def _met(core: Core, other: Future[Any]) -> bool:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return other.done() or bool(core.read(lambda session: session.scalar(waiting)))


def test_a_file_that_a_sweep_removes_late_is_not_one_that_was_stored_since(tmp_path: Path) -> None:
    """As a server may that stood still between the row and the bytes."""
    blobs = FileStore(tmp_path)
    locations = []

    async def stand_still() -> None:
        for _ in range(2):
            with blobs.incoming() as file:
                file.write(b"the same")
                locations.append(await blobs.keep(file, BUNDLE))
        await blobs.remove(locations[0])
        await blobs.remove(locations[0])

    asyncio.run(stand_still())
    assert [blobs.holds(location) for location in locations] == [False, True]
