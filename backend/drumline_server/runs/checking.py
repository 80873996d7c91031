"""Judges submissions before anything is stored: the program, its parameters, and whether the fleet could hold them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from sqlalchemy.orm import Session

from drumline import program
from drumline.contracts import api
from drumline.contracts.problems import FieldProblem, ProblemCode
from drumline.contracts.spec import RunSubmit
from drumline.contracts.storable import unstorable
from drumline.errors import ParameterError, ProgramError
from drumline_server.bundles import service as bundles
from drumline_server.checkpoints import service as checkpoints
from drumline_server.errors import DrumlineError, InvalidRequestError, NotFoundError
from drumline_server.plans.lookup import require_plan
from drumline_server.runs.feasibility import check_feasible, check_readable, check_supported
from drumline_server.scheduler.capacity import HostCapacity, capacities

_WORD = re.compile(r"[a-z]+ ")


def require_storable(body: RunSubmit) -> None:
    """Raises InvalidRequestError for parameters that no store, and no hash of the request, could take."""
    problem = unstorable(body.parameters)
    if problem:
        raise InvalidRequestError("parameters", problem)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a submission turned out to mean."""

    parameters: dict[str, JsonValue]
    """As the program takes them."""
    plan_id: str | None
    """The plan that it was submitted from."""
    resume_from: str | None
    """The checkpoint that its first attempt goes on from."""


class Checker:
    """Checks submissions to one project; what many of them share is looked up once."""

    def __init__(self, session: Session, project_id: str) -> None:
        self._session = session
        self._project_id = project_id
        self._bundles: dict[str, api.Bundle] = {}
        self._hosts: dict[str, list[HostCapacity]] = {}
        self._homes: dict[str, checkpoints.Home | None] = {}
        self._shapes: dict[tuple[str, str, bool], DrumlineError | None] = {}
        """What was found of a strategy, its resources and whether it may wait."""

    def check(self, body: RunSubmit) -> Checked:
        """What the run needs to be queued.

        Raises DrumlineError: bundle_not_found, entrypoint_not_found, unknown_parameter, missing_parameter,
        bad_parameter, too_many_replicas, invalid_request, not_found for the plan or checkpoint.
        """
        parameters = self._checked_parameters(body)
        self._check_shape(body)
        if body.plan is not None:
            require_plan(self._session, self._project_id, body.plan)
        resume_from = body.resume_from and checkpoints.resolve(self._session, self._project_id, body.resume_from)
        if resume_from and not body.wait_for_devices:
            check_readable(body, self._home_of(resume_from), self._hosts_with(body.resources.platform))
        return Checked(parameters, body.plan, resume_from)

    def _check_shape(self, body: RunSubmit) -> None:
        """Judges each shape once: the runs of a sweep all have the same."""
        strategy, resources = body.job.strategy.model_dump_json(), body.resources.model_dump_json()
        asked = strategy, resources, body.wait_for_devices
        if asked not in self._shapes:
            self._shapes[asked] = _refusal_of(body, self._hosts_with)
        refusal = self._shapes[asked]
        if refusal is not None:
            raise refusal.with_traceback(None)  # which grows by each raise

    def _checked_parameters(self, body: RunSubmit) -> dict[str, JsonValue]:
        packed = self._bundle(body.job.program.bundle)
        try:
            entrypoint = program.find(packed.entrypoints, body.job.program.entrypoint)
            return program.check_parameters(entrypoint, body.parameters)
        except ParameterError as error:
            field = FieldProblem(field=f"parameters.{error.name}", message=error.message)
            raise DrumlineError(ProblemCode(error.code), sentence(error.message), errors=(field,)) from None
        except ProgramError as error:
            offered = [entry.entrypoint for entry in packed.entrypoints]
            field = FieldProblem(field="job.program.entrypoint", message=error.message)
            raise DrumlineError(
                ProblemCode(error.code), sentence(error.message), context={"entrypoints": offered}, errors=(field,)
            ) from None

    def _bundle(self, sha256: str) -> api.Bundle:
        if sha256 not in self._bundles:
            try:
                self._bundles[sha256] = bundles.get_bundle(self._session, self._project_id, sha256)
            except NotFoundError:
                raise DrumlineError(
                    ProblemCode.BUNDLE_NOT_FOUND,
                    f"There is no bundle {sha256}.",
                    hint="Upload the program first: POST /api/v1/bundles.",
                    errors=(FieldProblem(field="job.program.bundle", message=f"there is no bundle {sha256}"),),
                ) from None
        return self._bundles[sha256]

    def _home_of(self, checkpoint_id: str) -> checkpoints.Home | None:
        if checkpoint_id not in self._homes:
            self._homes[checkpoint_id] = checkpoints.home_of_source(self._session, self._project_id, checkpoint_id)
        return self._homes[checkpoint_id]

    def _hosts_with(self, platform: str) -> list[HostCapacity]:
        if platform not in self._hosts:
            self._hosts[platform] = capacities(self._session, self._project_id, platform)
        return self._hosts[platform]


def _refusal_of(body: RunSubmit, hosts_with: Callable[[str], Sequence[HostCapacity]]) -> DrumlineError | None:
    try:
        check_supported(body)
        check_feasible(body, hosts_with)
    except DrumlineError as error:
        return error
    return None


def sentence(text: str) -> str:
    """A message of the SDK as the API says it; a name at its beginning, such as `train:main`, stays as it is."""
    begins = text[:1].upper() if _WORD.match(text) else text[:1]
    return f"{begins}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"
