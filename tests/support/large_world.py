"""A server that has as much of everything as one answer can show: what reading costs others is tried on it."""

import base64
import hashlib
import io
import random
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef, TokenCreate
from drumline.contracts.arrays import MAX_WHOLE_ARRAY_BYTES, MAX_WHOLE_BYTES
from drumline.contracts.artifacts import (
    MAX_ARTIFACT_NAME,
    MAX_ARTIFACTS,
    MAX_METADATA,
    MAX_METADATA_CHARACTERS,
)
from drumline.contracts.base import from_micros, new_id
from drumline.contracts.events import MAX_REPLICAS_TOLD, WorkerEvent
from drumline.contracts.plans import MAX_LISTED, MAX_PROBE_DEVICES
from drumline.contracts.profiles import (
    MAX_LANES,
    MAX_OPERATION_NAME,
    MAX_OPERATION_NAMES,
    MAX_OPERATIONS,
    MAX_PROFILES,
)
from drumline.contracts.programs import MAX_COLLECTIVES
from drumline.contracts.spec import RunSubmit
from drumline.contracts.spent import Spent
from drumline.contracts.stacks import MAX_STACKS
from drumline.contracts.worker_api import KEY_HEADER
from drumline_server.services.access import create_token
from drumline_server.storage.models import (
    Artifact,
    Batch,
    Host,
    LedgerEntry,
    Plan,
    Run,
    WebhookDelivery,
)
from drumline_server.storage.models import Member as MemberRow
from drumline_server.storage.models.base import insert_rows
from support.core import GANG, Member, key_of, submission_body
from support.edge import EdgeServer
from support.large_gang import tell_of_gang
from support.pictures import gray_png

V1 = "/api/v1"
HOSTS, DEVICES_OF_HOST = 100, 40
PAGE = 200
_PART = 50
"""So many labelled runs are a body within the server's limit."""
NAMES = 200
SLICE = "large"
_TOPOLOGY = "v4:16x16x16"
_LABELS = {f"label-{number}": "\x7f" * 200 for number in range(64)}
_TEXT = '"\\' * 60
"""Each character of it is two in JSON."""


class LargeWorld:
    """What stands on `server`; `names` has the ids by what they are large in."""

    def __init__(self, server: EdgeServer) -> None:
        self.server, self.core = server, server.core
        self.client = server.admin
        self.names: dict[str, str] = {"job": "digits", "programs": "wide"}
        self.sizes: dict[str, int] = {}
        """Bytes of the answer of each route."""
        worker = self.core.add_worker("alpha", devices=1)
        self.worker_client = server.client(server.worker_token(worker.host_id))
        self._make_plan()
        told = self._submit(plan=self.names["plan"], labels=_LABELS)
        self.names["told"] = told
        self.core.schedule()
        self._tell(worker.take().start())
        self.core.write(
            lambda session: session.execute(update(Run).where(Run.id == told).values(plan_id=self.names["plan"]))
        )
        self._make_fleet()
        self._make_programs()
        self._make_lists()
        self._make_run_lists()
        self._make_slice()
        self._make_ledger()
        self._make_webhooks()

    def _make_run_lists(self) -> None:
        """A change of many runs and as many saved views as there may be."""
        change = {"action": {"kind": "label", "labels": dict.fromkeys(_LABELS, "x" * 200)}, "where": ""}
        self.names["bulk"] = self._post("runs:change", change, "-")["id"]
        view = {"columns": ["job" * 80] * 30, "where": " " * 2000}
        for number in range(200):
            answer = self.client.put(f"{V1}/run-views/view {number}", json=view)
            assert answer.status_code == 200, answer.text[:2000]

    def _make_webhooks(self) -> None:
        """As many as a project may have, one of them with a thousand deliveries that wait."""
        hook = {"url": "https://hooks.example/" + "x" * 1_900, "job": "j" * 63}
        made = [self._post("webhooks", {**hook, "name": f"{nth:n>100}"}, "-")["id"] for nth in range(20)]
        self.names["webhook"] = made[0]
        alert = {"id": new_id("whd"), "type": "test", "timestamp": self.core.clock.now()}
        data = {"project": self.core.project_id, "webhook": made[0]}
        row = {
            "webhook_id": made[0],
            "project_id": self.core.project_id,
            "alert": "test",
            "body": api.Alert.model_validate({**alert, "data": data}).model_dump_json(),
            "state": "waiting",
            "tries": 0,
            "created_at": self.core.clock.now(),
            "due_at": self.core.clock.now(),
            "error": "e" * 500,
        }
        rows = [{**row, "id": name, "cause": name} for name in (new_id("whd") for _ in range(1_000))]
        self.core.write(lambda session: insert_rows(session, WebhookDelivery, rows))

    def _post(self, path: str, body: Any, key: str = "") -> Any:
        headers = {"Idempotency-Key": key or path} if key != "-" else {}
        answer = self.client.post(f"{V1}/{path}", json=body, headers=headers)
        assert answer.status_code < 300, answer.text[:2000]
        return answer.json()

    def _submit(self, **changes: Any) -> str:
        self._keys = getattr(self, "_keys", 0) + 1
        body = submission_body(**changes).model_dump(mode="json")
        return str(self._post("runs", body, f"key-{self._keys}")["run"]["id"])

    def _make_programs(self) -> None:
        """Two versions of a program of many entrypoints, parameters and files, that differ in all of them."""
        for version in range(2):
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
                parameters = ", ".join(f"parameter_{number}={version}" for number in range(15))
                source = "".join(f"def main_{n}(run, *, {parameters}):\n    '''Trains.'''\n" for n in range(150))
                bundle.writestr("wide.py", source)
                for number in range(60):
                    lines = "".join(f'"{version}\\\\ {line}"\n' for line in range(1_000))
                    bundle.writestr(f"part_{number}.py", lines)
            content, headers = packed.getvalue(), {"Content-Type": "application/zip"}
            made = self.client.post(f"{V1}/bundles", content=content, headers=headers)
            assert made.status_code == 201, made.text[:2000]
            self.names["bundle"] = made.json()["sha256"]
            program = {"bundle": self.names["bundle"], "entrypoint": "wide:main_0"}
            self._submit(job={"name": "wide", "program": program}, wait_for_devices=True)

    def _make_plan(self) -> None:
        """A plan of as many variables and exchanges as a probe may list, on as many devices."""
        asked = submission_body(resources={"replicas": 1}, labels=_LABELS).model_dump(mode="json")
        self.names["plan"] = str(self._post("plan", {"run": asked, "probe": None}, "plan")["id"])
        homes = [*range(MAX_PROBE_DEVICES), "host"]
        variable = {"shape": [1] * 8, "dtype": "float32", "synchronization": "on_write", "aggregation": "mean"}
        program = {
            "strategy": "mirrored", "executor": "spmd", "steps": 16, "calls": 16, "ended": True,
            "variables": [
                {**variable, "name": f"v{n}", "size_bytes": 4, "homes": homes} for n in range(MAX_LISTED)
            ],
            "collectives": [], "batches": [], "inputs": [], "memory": [], "warnings": [], "seconds": 1.0,
        }  # fmt: skip
        change = update(Plan).where(Plan.id == self.names["plan"]).values(program=program)
        self.core.write(lambda session: session.execute(change))

    def _make_fleet(self) -> None:
        """Many hosts, and a gang on all of them that waits for nobody's claim."""
        for number in range(HOSTS):
            self.core.add_worker(f"host-{number:03}-{'x' * 40}", devices=DEVICES_OF_HOST)
        replicas = HOSTS * DEVICES_OF_HOST
        gang = self.core.queue(job=GANG, resources={"replicas": replicas}, labels=_LABELS)
        self.core.schedule()
        self.names["gang"] = gang.id
        collective = {"name": _TEXT, "kind": "all_reduce", "dtype": "float32", "shape": [2**40] * 64, "size_bytes": 8}
        program = {
            "name": _TEXT,
            "digest": "f" * 64,
            "executor": "spmd",
            "collectives": [collective] * MAX_COLLECTIVES,
        }
        text = '"\\' * (MAX_STACKS // 2)
        standing = {
            "asked_at": "2026-01-01T00:00:00Z",
            "activity": "own_code",
            **dict.fromkeys(("advances", "idle_s", "silent_s"), 0),
            "program": program,
            "python": text,
            "threads": text,
        }
        stands = {"stacks_asked_at": 1, "stacks_answered_at": 2, "standing": standing}
        stands |= {"claimed_at": self.core.clock.now(), "spent": {name.value: 10**9 for name in Spent}}
        change = update(MemberRow).where(MemberRow.run_id == gang.id).values(stands)
        self.core.write(lambda session: session.execute(change))
        self.core.write(lambda session: tell_of_gang(session, gang.id))

    def _make_slice(self) -> None:
        """A host of the largest slice that there may be."""
        large = {"slice_name": SLICE, "slice_topology": _TOPOLOGY}
        self.core.write(lambda session: session.execute(update(Host).values(large)))

    def _make_ledger(self) -> None:
        """Entries of more hosts than a page has, under every name."""
        spent = {"wall_us": 10**12, "device_us": 10**12, "ended_at": self.core.clock.now() - 1}
        entry = {"run_id": self.names["gang"], "project_id": self.core.project_id, "owner": "x" * 64}
        entries = [
            {**entry, **spent, "host_id": f"host-{number}", "device_kind": kind, "name": name.value}
            for number in range(PAGE + 1)
            for kind in ("TPU v4", "x" * 200)
            for name in Spent
        ]
        self.core.write(lambda session: session.execute(insert(LedgerEntry), entries))

    def _make_lists(self) -> None:
        """More than a page of jobs, versions, tokens, batches and waiting runs."""
        self.core.write(self._add_tokens)
        jobs = [submission_body(job={"name": f"job-{number}"}, wait_for_devices=True) for number in range(PAGE)]
        self._batch("jobs", jobs)
        self._batch("versions", [
            submission_body(job={"checkpoint": {"every_steps": number + 1}}, wait_for_devices=True)
            for number in range(PAGE)
        ])  # fmt: skip
        labelled = submission_body(wait_for_devices=True, labels=_LABELS)
        for part in range(0, PAGE, _PART):
            self._batch(f"labelled-{part}", [labelled] * _PART)
        self.core.write(_copy_batch)
        run = submission_body(wait_for_devices=True, labels={}).model_dump(mode="json")
        grid = {
            "kind": "grid",
            "parameters": {"epochs": list(range(1_000)), "learning_rate": [n / 10 for n in range(5)]},
        }
        made = self._post("runs:sweep", {"name": "many", "run": {**run, "parameters": {}}, "sweep": grid}, "sweep")
        self.names["batch"] = made["batch"]["id"]
        outcomes = {f"m{number}": number / 7 for number in range(50)}
        ended = update(Run).where(Run.batch_id == self.names["batch"]).values(outcomes=outcomes)
        self.core.write(lambda session: session.execute(ended))
        self.followed = made["runs"][:50]
        self.events_followed = len(self.followed)

    def _add_tokens(self, session: Session) -> None:
        by = PrincipalRef(name="test")
        for number in range(PAGE):
            request = TokenCreate(name=f"t{number}-{'x' * 60}")
            create_token(session, request, project_id=self.core.project_id, by=by, now=self.core.clock.now())

    def _batch(self, key: str, runs: Sequence[RunSubmit]) -> None:
        self._post("runs:batch", {"name": _TEXT, "runs": [run.model_dump(mode="json") for run in runs]}, key)

    def _tell(self, member: Member) -> None:
        """As much telemetry as there can be of one member."""
        now = from_micros(self.core.clock.now()).isoformat()
        self._tell_metrics(member, now)
        for number in range(20):
            text = "\x01\n" * 32_768 if number % 2 else "\x01" * 65_536
            member.send(member.event("log", stream="stdout", text=text, offset=number * len(text)))
        point = {"shape": [], "dtype": "float32", "values": [0.1], "min": 0.1, "max": 0.1, "mean": 0.1, "norm": 0.1}
        reduction = partial(member.event, "reduction", op="mean", axis=0, denominator=MAX_REPLICAS_TOLD, result=point)
        many = MAX_REPLICAS_TOLD
        member.send(reduction(name="wide", step=0, inputs=[point] * many, counts=[1] * many))
        member.send(member.event("reduction", **whole_reduction()))
        for name in range(2_000 // PAGE):
            events = [
                reduction(name=f"{_TEXT}{name}-{number}", step=1, inputs=[point] * 8, counts=[1] * 8)
                for number in range(PAGE)
            ]
            member.send(*events)
        self._tell_non_finite(member)
        self._tell_media(member)
        self._tell_profiles(member)
        self._keep_artifacts(member)
        device = self.core.devices()[0].id
        variable = partial(
            member.event, "variable", shape=[1] * 8, dtype="float32", synchronization="on_write", aggregation="mean"
        )
        member.send(
            *(variable(name=f"{_TEXT}{number}", homes=[device, "host"], size_bytes=4) for number in range(2_000))
        )
        rows = [row for number in range(PAGE + 1) for row in self._rows(member, number, now)]
        for start in range(0, len(rows), PAGE):
            member.send(*rows[start : start + PAGE])
        run = self.names["told"]
        path = f"{V1}/runs/{run}/reductions"
        for recorded, known in (("wide", "reduction"), ("whole", "whole")):
            found = self.client.get(path, params={"name": recorded}).json()["items"][0]["id"]
            self.names[known] = f"{run}/reductions/{found}"

    def _rows(self, member: Member, number: int, now: str) -> list[WorkerEvent]:
        """What has a row of its own in a list each."""
        path = f"f1/{'x' * 900}{number}"
        return [
            member.event("checkpoint", step=number, path=path, size_bytes=1, manifest="sha256:ab"),
            member.event("gap", what="metrics", count=3, detail=_TEXT),
            member.event("metrics", names=["loss"], steps=[number], times=[now], values=[0.5]),
            member.event("state", phase="compiling", detail=_TEXT * 10),
        ]

    def _tell_non_finite(self, member: Member) -> None:
        replicas = [{"replica": number, "nan_count": 2**40, "inf_count": 2**40} for number in range(MAX_REPLICAS_TOLD)]
        odd = partial(member.event, "non_finite", step=1, call=1, op="mean", shape=[2**20] * 8, result_count=2**40)
        member.send(odd(name="wide", replicas=replicas))
        for start in range(0, 1_000, PAGE):
            names = [f"{_TEXT}{number}" for number in range(start, start + PAGE)]
            member.send(*(odd(name=name, replicas=replicas[:16]) for name in names))

    def _tell_media(self, member: Member) -> None:
        """The largest of each kind, and as many names and steps as one process may log."""
        told = partial(member.event, "media", step=0)
        table = {"kind": "table", "columns": ["c" * 10] * 10, "rows": [[0.123456789] * 10] * 1_000}
        png = base64.b64encode(_noise_png()).decode()
        member.send(told(name="table", value=table), told(name="text", value={"kind": "text", "text": "\x01" * 65_536}))
        member.send(told(name="image", value={"kind": "image", "png": png}))
        bins = {"kind": "histogram", "counts": [2**40] * 64, "min": -0.123456789, "max": 1e300, "count": 2**46}
        small = {"kind": "text", "text": "x"}
        member.send(*(member.event("media", name="weights", step=step, value=bins) for step in range(4_000)))
        member.send(*(member.event("media", name="m", step=step, value=small) for step in range(4_000)))
        member.send(*(told(name=f"{_TEXT[:190]}{number}", value=small) for number in range(PAGE)))
        path = f"{V1}/runs/{self.names['told']}/media/at"
        for kind in ("table", "image"):
            found = self.client.get(path, params={"name": kind, "kind": kind}).json()["id"]
            self.names[kind] = f"{self.names['told']}/media/{found}"

    def _keep_artifacts(self, member: Member) -> None:
        """As many as one run may keep, with all that may be said of one; one of them is there."""
        longest = MAX_METADATA_CHARACTERS // MAX_METADATA - 50
        about = {f"{_TEXT[:48]}{number:02}": _TEXT[:longest] for number in range(MAX_METADATA)}
        content = random.Random(2).randbytes(4 * 2**20)
        name = '"' * MAX_ARTIFACT_NAME
        kept = {"name": name, "size_bytes": len(content), "sha256": f"sha256:{hashlib.sha256(content).hexdigest()}"}
        other = {"name": name, "size_bytes": 1, "sha256": f"sha256:{1:064x}", "metadata": about}
        for first in range(0, MAX_ARTIFACTS, 20):
            told = [kept if number == MAX_ARTIFACTS - 1 else other for number in range(first, first + 20)]
            member.send(*(member.event("artifact", artifact=each) for each in told))
        self.worker_client.headers[KEY_HEADER] = key_of(member.id).get_secret_value()
        path = f"{member.id}/artifacts/{kept['sha256']}"
        sent = self.worker_client.patch(f"{V1}/worker/members/{path}", params={"offset": 0}, content=content)
        assert sent.json()["state"] == "STORED", sent.text
        is_there = select(Artifact.id).where(Artifact.location.is_not(None))
        found = self.core.read(lambda session: session.scalars(is_there).one())
        self.names |= {"content": path, "artifact": f"{self.names['told']}/artifacts/{found}"}

    def _tell_profiles(self, member: Member) -> None:
        """As many as one process may trace, the first as large as one may be."""
        devices = [f"dev_0{number:025d}" for number in range(MAX_LANES)]
        time = {"computing_ns": 2**40, "collective_ns": 2**40, "both_ns": 2**40, "idle_ns": 2**40, "operations": 9}
        each = MAX_OPERATIONS // MAX_LANES
        columns = {"begins_ns": [2**40] * each, "durations_ns": [2**40] * each, "operations": [*range(each)]}
        names = [{"name": "x" * MAX_OPERATION_NAME, "is_collective": True}] * MAX_OPERATION_NAMES
        content = {"operations": names, "lanes": [{"device": device, **columns} for device in devices]}
        file = base64.b64encode(b"PK" + random.Random(1).randbytes(500_000)).decode()
        told = partial(member.event, "profile", call=1, span_ns=2**42)
        times = [{"device": device, **time} for device in devices]
        member.send(told(step=0, devices=times, content=content, file=file, file_bytes=500_002))
        member.send(*(told(step=step, devices=times[:1]) for step in range(1, MAX_PROFILES)))
        path = f"{V1}/runs/{self.names['told']}/profiles"
        found = self.client.get(path, params={"limit": MAX_PROFILES}).json()["items"][-1]["id"]
        self.names["profile"] = f"{self.names['told']}/profiles/{found}"

    def _tell_metrics(self, member: Member, now: str) -> None:
        columns = 80
        names = [f"metric-{name}" for name in range(NAMES)] * columns
        for batch in range(20):
            steps = [batch * columns + number // NAMES for number in range(len(names))]
            values = [number / 7 for number in range(len(names))]
            member.send(member.event("metrics", names=names, steps=steps, times=[now] * len(names), values=values))


def whole_reduction() -> dict[str, Any]:
    """Fields of one that keeps as many elements as it may, of noise, which is not compressed."""
    array = {"shape": [MAX_WHOLE_ARRAY_BYTES // 4], "dtype": "float32"}
    whole = base64.b64encode(zlib.compress(random.Random(0).randbytes(MAX_WHOLE_BYTES))).decode()
    many = MAX_WHOLE_BYTES // MAX_WHOLE_ARRAY_BYTES - 1
    fields = {"name": "whole", "op": "sum", "step": 0, "inputs": [array] * many, "counts": [1] * many}
    return {**fields, "result": array, "whole": whole}


def _noise_png() -> bytes:
    """An image as large as one may be, nearly: noise is not compressed."""
    return gray_png(720, 720, random.Random(0).randbytes(720 * 720))


def _copy_batch(session: Session) -> None:
    """As many batches as a page has, like the newest one."""
    newest = session.scalars(select(Batch).order_by(Batch.id.desc()).limit(1)).one()
    values = {column.key: getattr(newest, column.key) for column in Batch.__mapper__.column_attrs}
    session.execute(insert(Batch), [values | {"id": new_id("bat")} for _ in range(PAGE)])
