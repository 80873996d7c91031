"""Versions of a job: never changed, compared, rolled back to, and run again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from drumline import bundle
from drumline.contracts import api
from drumline_server.base.errors import DrumlineError
from drumline_server.services import submit as submit_service
from support.core import TESTER, Core, submission_body
from support.edge import EdgeServer, edge_server
from support.submissions import MOST_WAITING

V1 = "/api/v1"
MAIN = "def main(run, *, epochs: int = 20):\n    return {}\n"


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    with edge_server(database_url, tmp_path / "data") as running:
        running.core.add_worker()
        yield running


def submit(server: EdgeServer, tmp_path: Path, files: dict[str, bytes], **changes: Any) -> dict[str, Any]:
    """Submits a directory of `files` as the job `digits` and gives the run."""
    source = tmp_path / f"source-{len(list(tmp_path.iterdir()))}"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content)
    packed = bundle.pack(source)
    server.admin.post(f"{V1}/bundles", content=packed, headers={"Content-Type": "application/zip"})
    job = {"program": {"bundle": bundle.digest(packed), "entrypoint": "digits:main"}, **changes.pop("job", {})}
    body = submission_body(job=job, **changes).model_dump(mode="json")
    answer = server.admin.post(f"{V1}/runs", json=body, headers={"Idempotency-Key": source.name})
    assert answer.status_code == 201, answer.text
    run: dict[str, Any] = answer.json()["run"]
    return run


def get(server: EdgeServer, path: str, **params: Any) -> Any:
    answer = server.admin.get(f"{V1}{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rerun(client: httpx2.Client, run_id: str, key: str, **body: Any) -> httpx2.Response:
    return client.post(f"{V1}/runs/{run_id}:rerun", json=body, headers={"Idempotency-Key": key})


def test_diff_names_changed_fields_and_shows_text_of_changed_files(server: EdgeServer, tmp_path: Path) -> None:
    plain = {"digits.py": MAIN.encode(), "old.txt": b"gone\n", "weights.bin": b"\x00\x01"}
    changed = {"digits.py": MAIN.replace("20", "30").encode(), "new.txt": b"<b>new</b>\n", "weights.bin": b"\x00\x02"}
    submit(server, tmp_path, plain)
    submit(server, tmp_path, changed, job={"strategy": {"kind": "mirrored", "executor": "pmap"}})

    diff = get(server, "/jobs/digits/versions/2/diff")

    assert (diff["old"], diff["new"], diff["files_changed"]) == (1, 2, 4)
    fields = {field["path"]: (field["old"], field["new"]) for field in diff["fields"]}
    assert fields["strategy.executor"] == ("auto", "pmap")
    assert set(fields) == {"program.bundle", "strategy.executor"}
    files = {file["path"]: file for file in diff["files"]}
    assert {path: (file["change"], file["content"]) for path, file in files.items()} == {
        "digits.py": ("changed", "text"),
        "new.txt": ("added", "text"),
        "old.txt": ("removed", "text"),
        "weights.bin": ("changed", "binary"),
    }
    assert files["digits.py"]["diff"].splitlines() == [
        "--- v1/digits.py",
        "+++ v2/digits.py",
        "@@ -1,2 +1,2 @@",
        "-def main(run, *, epochs: int = 20):",
        "+def main(run, *, epochs: int = 30):",
        "     return {}",
    ]
    assert (files["digits.py"]["added_lines"], files["digits.py"]["removed_lines"]) == (1, 1)
    assert files["weights.bin"]["diff"] == ""


def test_diff_of_a_version_with_itself_is_empty_and_of_an_unknown_one_says_which_there_are(
    server: EdgeServer, tmp_path: Path
) -> None:
    submit(server, tmp_path, {"digits.py": MAIN.encode()})

    same = get(server, "/jobs/digits/versions/1/diff")
    unknown = server.admin.get(f"{V1}/jobs/digits/versions/7/diff")

    assert (same["fields"], same["files"]) == ([], [])
    assert unknown.status_code == 404
    assert unknown.json()["hint"] == "It has versions 1 to 1."


def test_rollback_moves_the_pointer_and_adds_to_the_history(server: EdgeServer, tmp_path: Path) -> None:
    submit(server, tmp_path, {"digits.py": MAIN.encode()})
    second = submit(server, tmp_path, {"digits.py": MAIN.replace("20", "30").encode()})
    assert get(server, "/jobs/digits")["current_version"] == 2

    for _ in range(2):
        answer = server.admin.post(f"{V1}/jobs/digits:rollback", json={"version": 1})
        assert (answer.status_code, answer.json()["current_version"]) == (200, 1)

    job = get(server, "/jobs/digits")
    assert (job["current_version"], job["latest_version"]) == (1, 2)
    changes = get(server, "/jobs/digits/changes")["items"]
    assert [(change["cause"], change["from_version"], change["to_version"]) for change in changes] == [
        ("rollback", 2, 1),
        ("submit", 1, 2),
        ("submit", None, 1),
    ]
    assert get(server, f"/runs/{second['id']}")["version"] == 2
    assert [item["number"] for item in get(server, "/jobs/digits/versions")["items"]] == [2, 1]


def test_rollback_holds_until_new_content_is_submitted(server: EdgeServer, tmp_path: Path) -> None:
    newer = {"digits.py": MAIN.replace("20", "30").encode()}
    submit(server, tmp_path, {"digits.py": MAIN.encode()})
    submit(server, tmp_path, newer)
    server.admin.post(f"{V1}/jobs/digits:rollback", json={"version": 1})

    assert submit(server, tmp_path, newer)["version"] == 2
    assert get(server, "/jobs/digits")["current_version"] == 1
    submit(server, tmp_path, {"digits.py": MAIN.replace("20", "40").encode()})
    assert get(server, "/jobs/digits")["current_version"] == 3


def test_rollback_to_an_unknown_version_or_by_a_viewer_is_refused(server: EdgeServer, tmp_path: Path) -> None:
    submit(server, tmp_path, {"digits.py": MAIN.encode()})
    viewer = server.client(server.token("viewer"))

    unknown = server.admin.post(f"{V1}/jobs/digits:rollback", json={"version": 9})
    forbidden = viewer.post(f"{V1}/jobs/digits:rollback", json={"version": 1})
    elsewhere = server.client(server.token("admin", server.core.add_project("other")))

    assert (unknown.status_code, forbidden.status_code) == (404, 403)
    assert elsewhere.post(f"{V1}/jobs/digits:rollback", json={"version": 1}).status_code == 404


def test_rerun_takes_the_old_version_and_options_whatever_is_current(server: EdgeServer, tmp_path: Path) -> None:
    first = submit(
        server, tmp_path, {"digits.py": MAIN.encode()}, parameters={"epochs": 3}, labels={"team": "a"}, priority=4
    )
    submit(server, tmp_path, {"digits.py": MAIN.replace("20", "30").encode()})

    answer = rerun(server.admin, first["id"], "again")
    replayed = rerun(server.admin, first["id"], "again")

    run = answer.json()["run"]
    assert answer.status_code == 201
    assert (run["version"], run["parameters"], run["labels"]) == (1, {"epochs": 3}, {"team": "a"})
    assert (run["priority"], run["rerun_of"], run["state"]) == (4, first["id"], "QUEUED")
    assert run["id"] != first["id"]
    assert replayed.json() == answer.json()
    assert replayed.headers["Idempotency-Replayed"] == "true"
    assert get(server, "/jobs/digits")["latest_version"] == 2


def test_rerun_that_no_host_could_hold_any_more_is_refused_unless_it_may_wait(core: Core) -> None:
    core.add_worker(devices=2)
    old = core.submit(resources={"replicas": 4}, wait_for_devices=True)

    def again(key: str, wait: bool | None) -> api.Run:
        body = api.RerunRequest(wait_for_devices=wait)
        request = submit_service.Rerun(core.project_id, TESTER, key, old.id, body, "tok_tester")
        return core.write(
            lambda session: submit_service.rerun(session, request, most_waiting=MOST_WAITING, now=core.clock.now())
        ).submitted.run

    with pytest.raises(DrumlineError, match="4 replicas"):
        again("a", False)
    assert again("b", None).wait_for_devices


def test_runs_are_listed_by_version(server: EdgeServer, tmp_path: Path) -> None:
    first = submit(server, tmp_path, {"digits.py": MAIN.encode()})
    submit(server, tmp_path, {"digits.py": MAIN.replace("20", "30").encode()})

    assert [run["id"] for run in get(server, "/runs", job="digits", version=1)["items"]] == [first["id"]]


def test_jobs_and_sweeps_are_found_by_a_part_of_their_names_in_any_case(server: EdgeServer, tmp_path: Path) -> None:
    for name in ("digits", "digits-large", "mnist"):
        submit(server, tmp_path, {"digits.py": MAIN.encode()}, job={"name": name})
    run = submission_body().model_dump(mode="json")
    for name in ("50% dropout", "500 epochs"):
        body = {"name": name, "runs": [run]}
        answer = server.admin.post(f"{V1}/runs:batch", json=body, headers={"Idempotency-Key": name.replace(" ", "-")})
        assert answer.status_code == 201, answer.text

    first = get(server, "/jobs", q="DIGIT", limit=1)
    rest = get(server, "/jobs", q="DIGIT", limit=1, cursor=first["next"])
    assert [job["name"] for page in (first, rest) for job in page["items"]] == ["digits", "digits-large"]
    assert rest["next"] is None
    assert [batch["name"] for batch in get(server, "/batches", q="50%")["items"]] == ["50% dropout"]
    by_id = get(server, "/batches", q="50")["items"][0]["id"]
    assert [batch["id"] for batch in get(server, "/batches", q=by_id[4:])["items"]] == [by_id]
    assert server.admin.get(f"{V1}/jobs", params={"name": "digits"}).status_code == 422
