"""Watching a run that waits: the reason is told again when it is another one."""

import io

from drumline.cli.watching import View
from drumline.contracts import api
from drumline.progress import open_progress
from drumline.resources.runs import Run
from support import answers
from support.answers import RUN_ID
from support.edge import EdgeServer
from support.layer import NO_ANSWER, ok

BUSY = api.Why(
    rule="devices_busy",
    sentence="Needs 6 replicas; alpha has 3 devices free.",
    evidence={"wanted": 6, "free": 3, "host": "alpha"},
    position=2,
)
NEXT = BUSY.model_copy(
    update={
        "position": 1,
        "suggestions": (api.Suggestion(kind="replicas", replicas=3, sentence="With 3 replicas it would start now."),),
    }
)


def test_reason_is_told_again_when_it_changes_and_only_then(run: Run, server: EdgeServer) -> None:
    waits = [ok(answers.run("QUEUED", why=why)) for why in (BUSY, BUSY, NEXT, NEXT)]
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", *waits)
    told = io.StringIO()
    view = View(run.refresh(), open_progress(told))

    view.open()
    for _ in range(3):
        view.follow_reason()

    assert told.getvalue().count("alpha has 3 devices free. Position 2 in the queue.") == 1
    assert told.getvalue().count("alpha has 3 devices free. Position 1 in the queue.") == 1
    assert told.getvalue().count("With 3 replicas it would start now.") == 1
    assert told.getvalue().count("rule devices_busy: wanted 6, free 3, host alpha") == 2


def test_run_that_no_longer_waits_is_not_asked_about(run: Run, server: EdgeServer) -> None:
    server.layer.answer_instead("GET", f"/runs/{RUN_ID}", ok(answers.run("RUNNING")), NO_ANSWER)
    view = View(run.refresh(), open_progress(io.StringIO()))

    view.follow_reason()

    assert len(server.layer.sent("GET", f"/runs/{RUN_ID}")) == 1
