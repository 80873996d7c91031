"""A job: its versions, what changed between them, and which one is current."""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from pydantic import JsonValue

from drumline._transport import Body, Transport, iterate_pages
from drumline._validation import require_id, require_parameters, typed_errors
from drumline.contracts import api
from drumline.contracts.spec import JobSpec, Limits, Platform, Resources, Retries, RunSubmit, Spread
from drumline.resources.runs import Run, submit_run


class Job:
    """One job. `details` is what the server last said of it; `refresh` asks again.

    job = client.job("digits")
    print(job.diff(6, 7).files[0].diff)
    job.rollback(6)
    job.run(parameters={"epochs": 5})  # runs version 6
    """

    def __init__(self, transport: Transport, details: api.Job) -> None:
        self._transport = transport
        self._path = job_path(details.name)
        self.details = details

    @property
    def name(self) -> str:
        """Its name."""
        return self.details.name

    @property
    def url(self) -> str:
        """Its page in the dashboard."""
        return f"{self._transport.config.url}/jobs/{quote(self.name, safe='')}"

    def refresh(self) -> "Job":
        """Asks the server again; returns itself."""
        self.details = self._transport.get(self._path, api.Job)
        return self

    def versions(self) -> Iterator[api.JobVersion]:
        """Its versions, newest first."""
        return iterate_pages(self._transport, f"{self._path}/versions", api.JobVersion)

    def version(self, number: int | None = None) -> api.JobVersion:
        """One version; the current one, as the server has it now, if no number is given. Raises NotFoundError."""
        wanted = self.refresh().details.current_version if number is None else number
        return self._transport.get(f"{self._path}/versions/{wanted}", api.JobVersion)

    def changes(self) -> Iterator[api.JobChange]:
        """Which version was current when, newest first."""
        return iterate_pages(self._transport, f"{self._path}/changes", api.JobChange)

    def diff(self, old: int, new: int) -> api.VersionDiff:
        """What changed from version `old` to version `new`. Raises NotFoundError."""
        return self._transport.get(f"{self._path}/versions/{new}/diff", api.VersionDiff, {"against": old})

    def rollback(self, version: int) -> "Job":
        """Makes that version the current one and returns itself. Versions and runs stay as they are."""
        body = Body.of(api.RollbackRequest(version=version))
        self._transport.send("POST", f"{self._path}:rollback", body, repeatable=True)
        return self.refresh()

    def run(  # noqa: PLR0913 - as Client.submit
        self,
        *,
        version: int | None = None,
        replicas: int = 1,
        parameters: Mapping[str, JsonValue] | None = None,
        platform: Platform = "any",
        spread: Spread = "pack",
        limits: Limits | None = None,
        retries: Retries | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        wait_for_devices: bool = False,
        anyway: bool = False,
        idempotency_key: str | None = None,
    ) -> Run:
        """Runs the current version, or the one of that number, and returns the run at once.

        The options are those of `Client.submit`; nothing is uploaded.
        """
        if parameters is not None:
            require_parameters(parameters)
        spec = self.version(version)
        with typed_errors():
            content = {name: getattr(spec, name) for name in ("program", "strategy", "record", "checkpoint")}
            request = RunSubmit(
                job=JobSpec(name=self.name, **content),
                parameters=dict(parameters or {}),
                resources=Resources(replicas=replicas, platform=platform, spread=spread),
                limits=limits or Limits(),
                retries=retries or Retries(),
                priority=priority,
                labels=dict(labels or {}),
                wait_for_devices=wait_for_devices,
                anyway=anyway,
            )
        return submit_run(self._transport, request, idempotency_key)

    def __repr__(self) -> str:
        return f"<Job {self.name} v{self.details.current_version}>"


def job_path(name: str) -> str:
    """Where the job of that name is in the API."""
    return f"/jobs/{quote(require_id(name, 'name', 'the name of a job, such as digits'), safe='')}"
