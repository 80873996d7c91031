"""The Python client: `Client().submit("digits.py", replicas=8)`."""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypedDict, TypeVar, Unpack
from urllib.parse import quote

from pydantic import JsonValue

from drumline import bundle, program
from drumline._transport import TIMEOUT_S, Body, Config, Transport, iterate_pages
from drumline._validation import parse_strategy, refuse, require_id, require_parameters, require_source, typed_errors
from drumline.contracts import api
from drumline.contracts.plans import CHIP_PROBE_S, PROBE_S, PROBE_STEPS, PlanRequest, ProbeTerms
from drumline.contracts.spec import (
    CheckpointSpec,
    JobSpec,
    Limits,
    Platform,
    ProgramRef,
    RecordSpec,
    Resources,
    Retries,
    RunSubmit,
    Spread,
    StrategySpec,
)
from drumline.contracts.states import RunState
from drumline.contracts.sweeps import BatchSubmit, GridSweep, SweepSpec, SweepSubmit
from drumline.program import PackedProgram
from drumline.resources.batches import Batch, batch_body
from drumline.resources.jobs import Job, job_path
from drumline.resources.plans import Plan, make_plan
from drumline.resources.run_lists import RunLists, find_run_id
from drumline.resources.runs import Run, submit_run
from drumline.resources.uploads import upload_program
from drumline.resources.webhooks import Webhooks

Acted = TypeVar("Acted", api.Host, api.Device)
MAX_NAME = 63


class SubmitOptions(TypedDict, total=False):
    """The keywords of `Client.submit` beside the source and the key; their meaning and defaults stand there."""

    name: str | None
    entrypoint: str | None
    replicas: int
    strategy: str | StrategySpec
    parameters: Mapping[str, JsonValue] | None
    platform: Platform
    spread: Spread
    limits: Limits | None
    retries: Retries | None
    record: RecordSpec | None
    checkpoint: CheckpointSpec | None
    priority: int
    labels: Mapping[str, str] | None
    wait_for_devices: bool
    anyway: bool
    resume_from: str | None


class Client(RunLists):
    """One Drumline server. Without arguments: DRUMLINE_URL and DRUMLINE_TOKEN, else what `drumline up` runs here.

        with Client() as client:
            run = client.submit("digits.py", replicas=8, parameters={"epochs": 5})
            print(run.wait().result)

    Every method raises an APIError where the server refuses and ServerUnreachableError where none answers.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.config = Config.load(url, token)
        self._transport = Transport(self.config, timeout_s=timeout_s)
        self.webhooks = Webhooks(self._transport)

    def submit(  # noqa: PLR0913 - all that a run can be given, each with its default
        self,
        source: str | Path | PackedProgram,
        *,
        name: str | None = None,
        entrypoint: str | None = None,
        replicas: int = 1,
        strategy: str | StrategySpec = "mirrored",
        parameters: Mapping[str, JsonValue] | None = None,
        platform: Platform = "any",
        spread: Spread = "pack",
        limits: Limits | None = None,
        retries: Retries | None = None,
        record: RecordSpec | None = None,
        checkpoint: CheckpointSpec | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        wait_for_devices: bool = False,
        anyway: bool = False,
        resume_from: str | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Submits a program, a Python file or a directory, and returns its run at once.

        `name` is the job's, by default the file's; `entrypoint` (`module:function`) is needed only where a program has
        several. Where no host alone has room, `spread` says how a gang is split: `pack` fills one host after the other,
        `balance` gives equal shares, `one_host` splits nothing. `wait_for_devices` queues more replicas than the hosts
        known now have devices for; `anyway` queues what a plan of the same content says does not fit its chips.
        `resume_from`, the id of a run or of a checkpoint, lets the program resume from there. A key of your own makes a
        repeated call safe: the same key and program give the same run.
        Raises BundleError, ProgramError (parameters too) before anything is sent, TooManyReplicasError, DoesNotFitError
        """
        request = self.prepare(
            source, name=name, entrypoint=entrypoint, replicas=replicas, strategy=strategy, parameters=parameters,
            platform=platform, spread=spread, limits=limits, retries=retries, record=record, checkpoint=checkpoint,
            priority=priority, labels=labels, wait_for_devices=wait_for_devices, anyway=anyway, resume_from=resume_from,
        )  # fmt: skip
        return submit_run(self._transport, request, idempotency_key)

    def prepare(self, source: str | Path | PackedProgram, **options: Unpack[SubmitOptions]) -> RunSubmit:
        """Uploads a program, and gives the submission that `submit` would send; refuses what needs no server to see."""
        packed = _pack(source, options.get("parameters"))
        chosen = program.find(packed.entrypoints, options.get("entrypoint"))
        checked = program.check_parameters(chosen, options.get("parameters") or {})
        request = self._request(packed, chosen, checked, options)
        upload_program(self._transport, packed.packed, request.job.program.bundle)
        return request

    def plan(
        self,
        source: str | Path | PackedProgram,
        *,
        steps: int = PROBE_STEPS,
        limit_s: float | None = None,
        probe: bool = True,
        on: str | None = None,
        batch_parameter: str | None = None,
        wait: bool = True,
        idempotency_key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Plan:
        """Says what a run would do, and runs nothing; `print(plan)` shows it, `plan.submit()` runs it.

        Takes what `submit` takes. The placement is known at once; `probe` lets a worker look at the program's first
        `steps` steps on simulated devices, for at most `limit_s` seconds (60; 600 with `on`), and `wait` waits.
        `on` names chips that need not be there, such as "v5e:16x16" or "h100:8": the program runs on shapes, and their
        own compiler says whether its steps fit. `batch_parameter`: a whole number that the program takes, of which
        the largest value that fits is looked for.
        Raises what `submit` raises.
        """
        usual_s = PROBE_S if on is None else CHIP_PROBE_S
        limit_s = usual_s if limit_s is None else limit_s
        with typed_errors():
            terms = ProbeTerms(limit_s=limit_s, steps=steps, on=on, batch_parameter=batch_parameter) if probe else None
        request = PlanRequest(run=self.prepare(source, **options), probe=terms)
        plan = make_plan(self._transport, Body.of(request), idempotency_key or uuid.uuid4().hex)
        return plan.wait() if wait else plan

    def submit_batch(
        self, requests: Sequence[RunSubmit], *, name: str = "", idempotency_key: str | None = None
    ) -> Batch:
        """Submits up to 10 000 prepared runs at once; where one of them is refused, none is queued.

            client.submit_batch([client.prepare("digits.py", parameters={"seed": seed}) for seed in range(5)]).wait()

        Raises InvalidRequestError whose `problem.errors` name each run and field.
        """
        if not isinstance(requests, Sequence):
            refuse("requests", requests, "pass a list of what prepare() gave")
        with typed_errors():
            body = BatchSubmit(name=name, runs=list(requests))
        return self._post_batch("/runs:batch", batch_body(body), idempotency_key)

    def sweep(
        self,
        source: str | Path | PackedProgram,
        sweep: SweepSpec | Mapping[str, Sequence[JsonValue]],
        *,
        batch_name: str = "",
        idempotency_key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Batch:
        """Submits a program once for each point of a sweep, and returns the batch at once.

        A mapping of parameters to values is a grid of all combinations; see `drumline.contracts.sweeps` for lists of
        points and for points drawn at random. The other keywords are those of `submit`.
        Raises BundleError, ProgramError, InvalidRequestError (bad_sweep).
        """
        if isinstance(sweep, Mapping):
            for name, values in sweep.items():
                _require_values(name, values)
        packed = _pack(source, options.get("parameters"))
        chosen = program.find(packed.entrypoints, options.get("entrypoint"))
        request = self._request(packed, chosen, options.get("parameters") or {}, options)
        with typed_errors():
            spec = GridSweep(parameters={k: list(v) for k, v in sweep.items()}) if isinstance(sweep, Mapping) else sweep
            body = SweepSubmit(name=batch_name, run=request, sweep=spec)
        upload_program(self._transport, packed.packed, request.job.program.bundle)
        return self._post_batch("/runs:sweep", Body.of(body), idempotency_key)

    def batch(self, batch_id: str) -> Batch:
        """One batch. NotFoundError if this project has none of that id."""
        path = f"/batches/{quote(require_id(batch_id, 'batch_id', 'the id of a batch, such as bat_01J...'), safe='')}"
        return Batch(self._transport, self._transport.get(path, api.Batch))

    def batches(self) -> Iterator[api.Batch]:
        """The batches of the project, newest first."""
        return iterate_pages(self._transport, "/batches", api.Batch)

    def get(self, run_id: str) -> Run:
        """One run, by its id or by the end of it, `r-9xk2f` as the dashboard shows it, among the newest 500.

        NotFoundError if this project has none of that id, OptionError if several end so.
        """
        known = find_run_id(self._transport, require_id(run_id, "run_id", "the id of a run, such as run_01J..."))
        return Run(self._transport, self._transport.get(f"/runs/{quote(known, safe='')}", api.Run))

    def list(
        self,
        *,
        states: Sequence[RunState | str] = (),
        job: str | None = None,
        version: int | None = None,
        owner: str | None = None,
        batch: str | None = None,
        labels: Mapping[str, str] | None = None,
        search: str | None = None,
        sort: Literal["-created", "created"] = "-created",
    ) -> Iterator[api.RunSummary]:
        """The runs of the project that match all of this, newest first, fetched page by page as you iterate.

        `owner` is the name of who submitted it, or the id of a token or session; `client.who()` has one's own.
        `search` is part of a job's name or the start of a run id; `sort="created"` begins with the oldest.
        """
        if not isinstance(labels, Mapping | None):
            refuse("labels", labels, 'pass a dict, such as {"team": "vision"}')
        params = {
            "state": [states] if isinstance(states, str) else [*states],
            "job": job,
            "version": version,
            "owner": owner,
            "batch": batch,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()],
            "q": search,
            "sort": sort,
        }
        return iterate_pages(self._transport, "/runs", api.RunSummary, params)

    def who(self) -> api.Session:
        """Who the server takes this client for."""
        return self._transport.get("/sessions/current", api.Session)

    def jobs(self) -> Iterator[api.Job]:
        """The jobs of the project."""
        return iterate_pages(self._transport, "/jobs", api.Job)

    def job(self, name: str) -> Job:
        """One job with its versions. NotFoundError if this project has none of that name."""
        return Job(self._transport, self._transport.get(job_path(name), api.Job))

    def entrypoint(self, ref: ProgramRef) -> api.ProgramEntrypoint:
        """What a stored program takes. Raises NotFoundError for an unknown bundle, EntrypointNotFoundError."""
        stored = self._transport.get(f"/bundles/{quote(ref.bundle, safe=':')}", api.Bundle)
        return program.find(stored.entrypoints, ref.entrypoint)

    def hosts(self) -> Iterator[api.Host]:
        """The machines with a worker."""
        return iterate_pages(self._transport, "/hosts", api.Host)

    def ledger(
        self, by: str = "owner", *, start: datetime | None = None, end: datetime | None = None
    ) -> Iterator[api.LedgerSum]:
        """Where the time of runs went that ended in a period, or the last 30 days, `by` owner, host or project."""
        asked = {"by": by, "from": start and start.isoformat(), "to": end and end.isoformat()}
        return iterate_pages(self._transport, "/ledger", api.LedgerSum, asked)

    def devices(self) -> Iterator[api.Device]:
        """Every device of every host."""
        return iterate_pages(self._transport, "/devices", api.Device)

    def links(self, slice_name: str) -> Iterator[api.ChipLink]:
        """The links between the chips of a TPU slice, by the name that its hosts have (`host.slice.name`)."""
        return iterate_pages(self._transport, "/links", api.ChipLink, {"slice": slice_name})

    def drain_host(self, host_id: str) -> api.Host:
        """Gives the host no more runs; programs there stop in their grace and resume elsewhere."""
        return self._act("hosts", host_id, "drain", api.Host)

    def undrain_host(self, host_id: str) -> api.Host:
        """Lets a drained host take runs again."""
        return self._act("hosts", host_id, "undrain", api.Host)

    def release_host(self, host_id: str) -> api.Host:
        """Ends the quarantine of a host on which run after run failed."""
        return self._act("hosts", host_id, "release", api.Host)

    def release_device(self, device_id: str) -> api.Device:
        """Frees a quarantined device, on your word that its last holder is dead."""
        return self._act("devices", device_id, "release", api.Device)

    def server_version(self) -> api.Version:
        """What the server is and can do."""
        return self._transport.get("/version", api.Version)

    def login_url(self, path: str = "/") -> str:
        """An address that signs a browser in once, within ten minutes. PermissionDeniedError without an admin token."""
        code = self._transport.post("/login-codes", api.LoginCode).code.get_secret_value()
        return f"{self.config.url}/login?next={quote(path, safe='')}#code={quote(code, safe='')}"

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.config.url}>"

    def _act(self, things: str, thing_id: str, verb: str, answer: type[Acted]) -> Acted:
        known = require_id(thing_id, f"{things[:-1]}_id", f"the id of one of the {things}")
        return self._transport.post(f"/{things}/{quote(known, safe='')}:{verb}", answer)

    def _request(
        self,
        packed: PackedProgram,
        chosen: api.ProgramEntrypoint,
        parameters: Mapping[str, JsonValue],
        options: SubmitOptions,
    ) -> RunSubmit:
        labels = options.get("labels") or {}
        if not isinstance(labels, Mapping):
            refuse("labels", labels, 'pass a dict, such as {"team": "vision"}')
        with typed_errors():
            strategy = options.get("strategy", "mirrored")
            job = JobSpec(
                name=options.get("name") or job_name(packed.source),
                program=ProgramRef(bundle=bundle.digest(packed.packed), entrypoint=chosen.entrypoint),
                strategy=parse_strategy(strategy, {}) if isinstance(strategy, str) else strategy,
                record=options.get("record") or RecordSpec(),
                checkpoint=options.get("checkpoint") or CheckpointSpec(),
            )
            return RunSubmit(
                job=job,
                parameters=dict(parameters),
                resources=Resources(
                    replicas=options.get("replicas", 1),
                    platform=options.get("platform", "any"),
                    spread=options.get("spread", "pack"),
                ),
                limits=options.get("limits") or Limits(),
                retries=options.get("retries") or Retries(),
                priority=options.get("priority", 0),
                labels=dict(labels),
                wait_for_devices=options.get("wait_for_devices", False),
                anyway=options.get("anyway", False),
                resume_from=options.get("resume_from"),
            )

    def _post_batch(self, path: str, body: Body, idempotency_key: str | None) -> Batch:
        key = idempotency_key or uuid.uuid4().hex
        answer = self._transport.post(path, api.SubmittedBatch, body, key=key)
        return Batch(self._transport, answer.batch, answer.warnings)


def _pack(source: str | Path | PackedProgram, parameters: object) -> PackedProgram:
    """The program packed, once it is sure that source and parameters are such."""
    if not isinstance(source, PackedProgram):
        require_source(source)
    if parameters is not None:
        require_parameters(parameters)
    return source if isinstance(source, PackedProgram) else PackedProgram.of(source)


def _require_values(name: str, values: object) -> None:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        refuse(f"sweep.{name}", values, "pass a list of the values to try")


def job_name(source: Path) -> str:
    """The name of a job by its file or directory, in the letters that job names have."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", source.resolve().stem.lower()).strip("._-")
    return plain[:MAX_NAME].rstrip("._-") or "job"
