"""Every error that the SDK raises on purpose: one class per thing a caller can do about it.

DrumlineError                     base of all
├── ConfigError                   no server address or token, or an unreadable one
├── BundleError                   a program that cannot be packed, or an archive that breaks a rule
├── ProgramError                  the source of a program
│   ├── ProgramSyntaxError        Python cannot parse it
│   ├── EntrypointNotFoundError   it has no such function
│   └── ParameterError            a parameter does not fit `main`
│       ├── UnknownParameterError
│       ├── MissingParameterError
│       ├── BadParameterError
│       └── OptionError           an option of a submission or of a call
├── MissingExtraError             an extra of the package is not installed (an ImportError too)
├── MediaError                    run.log or run.summary takes no such value (a ValueError too)
├── UnsupportedStrategyError      the engine has nothing for this strategy or option
├── ServerUnreachableError        no answer from the server
│   └── StoreUnreachableError     nor from the object store that it named
├── StreamError                   the live stream sent what no server of ours sends
├── WaitTimeoutError              the run did not end in time (a TimeoutError too)
├── RunError                      about one run
│   ├── RunNotEndedError          it has no result yet
│   ├── RunFailedError            it failed; `reason` says why
│   ├── CheckpointGoneError       nothing is left of what it was told to resume from
│   ├── CheckpointFailedError     one of its processes could not save with the others
│   └── RunCancelledError         it was stopped on request
└── APIError                      the server refused: `status`, `code`, `request_id`, `hint`
    ├── InvalidRequestError       400, 405, 415, 422: the request is wrong
    │   ├── TooManyReplicasError  more replicas than devices
    │   ├── DoesNotFitError       its plan says that its chips lack the memory
    │   └── RejectedProgramError  bundle, entrypoint or parameters
    ├── AuthenticationError       401
    ├── PermissionDeniedError     403, 421: not with this token, host or origin
    ├── NotFoundError             404, 410
    ├── ConflictError             409
    ├── PayloadTooLargeError      413
    ├── RateLimitedError          429
    ├── ServerTooOldError         it does not know what this newer client asked of it
    └── ServerError               5xx
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drumline.contracts.api import Reason
    from drumline.contracts.problems import Problem


class DrumlineError(Exception):
    """Base of every error that Drumline raises on purpose. `hint` says what to do, where that is known."""

    hint: str = ""


class ConfigError(DrumlineError):
    """The address or the token of the server is missing or unreadable."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class MissingExtraError(DrumlineError, ImportError):
    """What was asked for needs a library that an extra of drumline brings."""


class BundleError(DrumlineError):
    """A program cannot be packed, or an archive breaks a rule. `code` names the rule, `entry` the archive's entry."""

    def __init__(self, code: str, message: str, entry: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.entry = entry


class ProgramError(DrumlineError):
    """The source of a program is wrong. `code` is a problem code of the REST API."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ProgramSyntaxError(ProgramError):
    """Python cannot parse a file of the program; the message names file and line."""


class EntrypointNotFoundError(ProgramError):
    """The program has no such entrypoint."""


class ParameterError(ProgramError):
    """A parameter does not fit the keywords of `main`; `name` is the parameter."""

    def __init__(self, code: str, message: str, name: str) -> None:
        super().__init__(code, message)
        self.name = name


class UnknownParameterError(ParameterError):
    """`main` has no such keyword."""


class MissingParameterError(ParameterError):
    """`main` needs this keyword and it has no default."""


class BadParameterError(ParameterError):
    """The value is not of the keyword's type."""


class OptionError(ParameterError):
    """An argument of the SDK, or an option of a submission, has a value that it cannot have; `name` is its name."""


class MediaError(DrumlineError, ValueError):
    """A histogram, image, text, table or value of the summary that is beyond a bound, or is none."""


class UnsupportedStrategyError(DrumlineError):
    """The engine has nothing for this strategy, or not with this option. `kind` is the strategy's kind."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ServerUnreachableError(DrumlineError):
    """No answer from the server at `url`."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"no Drumline server answers at {url}: {cause}")
        self.url = url
        self.hint = "start one with `drumline up`, or set DRUMLINE_URL to the address of yours"


class StoreUnreachableError(ServerUnreachableError):
    """The server's object store, at `url`, does not take a piece of a program."""

    def __init__(self, url: str, cause: str) -> None:
        DrumlineError.__init__(self, f"the server keeps programs in an object store that takes none at {url}: {cause}")
        self.url = url
        self.hint = "see whether this machine reaches that address; the server's operator set it (DRUMLINE_STORE)"


class StreamError(DrumlineError):
    """The live stream broke its own rules: an event that cannot be read, or no event stream at all."""


class WaitTimeoutError(DrumlineError, TimeoutError):
    """The run did not end in time; it keeps running."""


class RunError(DrumlineError):
    """About one run, named by `run_id`."""

    def __init__(self, run_id: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.hint = hint


class RunNotEndedError(RunError):
    """The run has no result yet."""


class RunFailedError(RunError):
    """The run failed; `reason` is the typed reason."""

    def __init__(self, run_id: str, message: str, reason: "Reason | None") -> None:
        super().__init__(run_id, message)
        self.reason = reason


class CheckpointGoneError(RunError):
    """Nothing is left of the checkpoint that a run was told to resume from. Raised in the program, by `run.restore`."""


class CheckpointFailedError(RunError):
    """What the processes of a run save together did not come about, for one of them. Raised by `run.checkpoint`."""


class RunCancelledError(RunError):
    """The run was stopped on request."""


class APIError(DrumlineError):
    """The server refused a request; `problem` is its answer whole."""

    def __init__(self, problem: "Problem") -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.status = problem.status
        self.code = str(problem.code)
        self.request_id = problem.request_id
        self.hint = problem.hint


class InvalidRequestError(APIError):
    """The request is wrong; `problem.errors` names the fields."""


class DoesNotFitError(InvalidRequestError):
    """A plan of the run, its own or one of the same content, says that it does not fit its chips; `anyway` tries it."""


class TooManyReplicasError(InvalidRequestError):
    """More replicas than any host known now has devices; `wait_for_devices=True` queues the run all the same."""


class RejectedProgramError(InvalidRequestError):
    """The server takes the bundle, the entrypoint or the parameters for wrong."""


class AuthenticationError(APIError):
    """No token, or one that is unknown, expired or revoked."""


class PermissionDeniedError(APIError):
    """The token's role does not allow this, or the server does not answer to this host name or origin."""


class NotFoundError(APIError):
    """There is no such thing in this project."""


class ConflictError(APIError):
    """It happened already, or something else happened first."""


class PayloadTooLargeError(APIError):
    """The body is over the server's cap."""


class RateLimitedError(APIError):
    """Too many requests; try later."""


class ServerError(APIError):
    """The server failed; `request_id` finds it in the server's log."""


class ServerTooOldError(APIError):
    """The server is older than this client and does not know what it was asked; `refusal` is what it answered."""

    def __init__(self, refusal: APIError, url: str, server_version: str, client_version: str) -> None:
        super().__init__(refusal.problem)
        self.args = (
            f"the server at {url} is drumline {server_version}, older than this client, drumline {client_version}, and "
            f"does not know what it was asked: {refusal}",
        )
        self.refusal = refusal
        self.server_version = server_version
        self.client_version = client_version
        self.hint = f"upgrade the server to drumline {client_version}, or use a client of drumline {server_version}"
