"""HTTP to one server: where it is and who asks, time limits, retries of what is safe to repeat, and typed errors.

Address and token are arguments, else of the environment, else what `drumline up` left on this machine.
"""

import json
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, SecretStr, ValidationError

from drumline import errors
from drumline._answers import error_of, error_of_older_server, is_for_versions, problem_of, unreadable
from drumline.contracts import api
from drumline.contracts.api import Page
from drumline.contracts.base import Reply
from drumline.contracts.problems import ProblemCode
from drumline.errors import ConfigError

CLIENT_FILE = "client.json"
_HINT = "start a server here with `drumline up`, or set DRUMLINE_URL and DRUMLINE_TOKEN"


@dataclass(frozen=True, slots=True)
class Config:
    """The address and the token of a server."""

    url: str
    """Scheme, host and port, without a final slash."""
    token: SecretStr

    @classmethod
    def load(
        cls, url: str | None = None, token: str | None = None, *, environ: Mapping[str, str] | None = None
    ) -> "Config":
        """What is given, else DRUMLINE_URL and DRUMLINE_TOKEN, else `client.json` of the data directory.

        A token from the file goes only to the server that the file names. Raises ConfigError where one is missing.
        """
        environ = os.environ if environ is None else environ
        url = url or environ.get("DRUMLINE_URL") or None
        token = token or environ.get("DRUMLINE_TOKEN") or None
        file = data_directory(environ) / CLIENT_FILE
        if url is None or token is None:
            file_url, file_token = _read(file)
            url = url or file_url
            if token is None and file_url is not None and check_url(str(url)) == check_url(file_url):
                token = file_token
        if url is None:
            raise ConfigError("no Drumline server is known", _HINT)
        if token is None:
            raise ConfigError(f"no token for the server at {url}", "set DRUMLINE_TOKEN, or ask an admin for one")
        return cls(check_url(url), check_token(token))


def data_directory(environ: Mapping[str, str]) -> Path:
    """Where `drumline up` keeps its files: DRUMLINE_DATA_DIR, else `~/.drumline`."""
    chosen = environ.get("DRUMLINE_DATA_DIR")
    return Path(chosen) if chosen else Path.home() / ".drumline"


def check_token(token: str) -> SecretStr:
    """`token` as headers can carry it. Raises ConfigError naming a character that no token has, nothing else of it."""
    token = token.strip()
    odd = next((character for character in token if not "!" <= character <= "~"), None)
    if odd is not None:
        raise ConfigError(
            f"the token holds {odd!a}, which no token does", "copy it again, into DRUMLINE_TOKEN or where it was given"
        )
    if not token:
        raise ConfigError("the token is empty", "set DRUMLINE_TOKEN, or ask an admin for one")
    return SecretStr(token)


def check_url(url: str) -> str:
    """`url` without path and final slash. Raises ConfigError unless it is an http or https address."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
        valid = valid and all("!" <= character <= "~" for character in parts.netloc)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        valid = False
    if not valid or parts.query or parts.path.strip("/"):
        raise ConfigError(f"{url!r} is no server address", "give scheme, host and port, such as http://127.0.0.1:7700")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{parts.scheme}://{host}{port}"


def _read(file: Path) -> tuple[str | None, str | None]:
    try:
        stored = json.loads(file.read_text("utf-8"))
        return str(stored["url"]), str(stored["token"])
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "remove it and start `drumline up` again") from None


API = "/api/v1"
TIMEOUT_S = 30.0
CONNECT_S = 5.0
MAX_TRIES = 5
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
_RETRIED_STATUS = frozenset({429, 502, 503})
_SAFE_METHODS = frozenset({"GET", "HEAD", "DELETE", "PUT"})
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item", bound=Reply)
Params = Mapping[str, Any]  # Any: what httpx2 takes as query values, with None for a parameter left out


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: a JSON contract, or bytes of a media type."""

    content: bytes
    media_type: str

    @classmethod
    def of(cls, model: BaseModel) -> "Body":
        """The contract as JSON."""
        return cls(model.model_dump_json().encode(), "application/json")


def trusted_by(url: str) -> ssl.SSLContext | bool:
    """What a client of `url` verifies certificates with: those of all authorities, or none where there is no TLS.

    To load them takes 30 ms. Without them a connection with TLS fails.
    """
    return urlsplit(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Transport:
    """One server over HTTP. `sleep` and `clock` are those of tries and streams; tests bring their own."""

    def __init__(
        self,
        config: Config,
        *,
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.sleep = sleep
        self.clock = clock
        self._timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S)
        self._http = httpx2.Client(
            base_url=config.url,
            timeout=self._timeout,
            headers={
                "Authorization": f"Bearer {config.token.get_secret_value()}",
                "User-Agent": f"drumline/{version('drumline')}",
            },
            trust_env=urlsplit(config.url).hostname not in _LOOPBACK,
            verify=trusted_by(config.url),
        )

    def get(self, path: str, model: type[Model], params: Params | None = None) -> Model:
        """The answer to a GET under `/api/v1`, as `model`."""
        return self._parse(self.send("GET", path, params=params), model)

    def get_once(self, path: str, model: type[Model], timeout_s: float) -> Model:
        """The same by one try that may take so many seconds, for a caller who asks again by himself."""
        request = self._request("GET", path, None, None, None)
        request.extensions["timeout"] = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)).as_dict()
        try:
            response = self._http.send(request)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        self._require_success(response)
        return self._parse(response, model)

    def post(
        self,
        path: str,
        model: type[Model],
        body: Body | None = None,
        *,
        params: Params | None = None,
        key: str | None = None,
    ) -> Model:
        """The answer to a POST, as `model`. Retried only with an idempotency `key`."""
        return self._parse(self.send("POST", path, body, params=params, key=key), model)

    def put(self, path: str, model: type[Model], body: Body) -> Model:
        """The answer to a PUT, as `model`."""
        return self._parse(self.send("PUT", path, body), model)

    def delete(self, path: str, model: type[Model], params: Params | None = None) -> Model:
        """The answer to a DELETE, as `model`."""
        return self._parse(self.send("DELETE", path, params=params), model)

    def send(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        params: Params | None = None,
        key: str | None = None,
        repeatable: bool = False,
    ) -> httpx2.Response:
        """A successful answer. Raises the APIError of a refusal, ServerTooOldError where the server is older than this
        client and does not know what it is asked, ServerUnreachableError where nothing answers.

        Tries again after a lost connection and after 429, 502 and 503, if the request is safe to repeat: by its method,
        by an idempotency `key`, or because the caller says so.
        """
        request = self._request(method, path, body, params, key)
        tries = MAX_TRIES if method in _SAFE_METHODS or key or repeatable else 1
        for attempt in range(tries):
            last = attempt == tries - 1
            try:
                response = self._http.send(request)
            except httpx2.TransportError as error:
                if last:
                    raise self._unreachable(error) from error
                self.sleep(backoff(attempt))
                continue
            if not last and _passes_soon(response):
                self.sleep(_retry_after(response) or backoff(attempt))
                continue
            self._require_success(response)
            return response
        raise AssertionError("the last try returns or raises")

    def put_elsewhere(self, url: str, content: bytes, headers: Mapping[str, str]) -> None:
        """Writes to a signed address of the server's object store, without a credential. One try.

        Raises StoreUnreachableError where the store does not take it, as for an address that is no longer good.
        """
        with self.elsewhere("PUT", url, content, headers):
            return

    @contextmanager
    def elsewhere(
        self, method: str, url: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx2.Response]:
        """The answer of the object store at a signed address, as it comes. Raises as `put_elsewhere`."""
        place = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        is_local = urlsplit(url).hostname in _LOOPBACK
        with httpx2.Client(timeout=self._timeout, trust_env=not is_local, verify=trusted_by(url)) as client:
            try:
                with client.stream(method, url, content=content, headers=dict(headers or {})) as response:
                    if not response.is_success:
                        said = f"it answered {response.status_code} {response.reason_phrase}"
                        raise errors.StoreUnreachableError(place, said)
                    yield response
            except httpx2.TransportError as error:
                raise errors.StoreUnreachableError(place, describe(error)) from error

    @contextmanager
    def stream(
        self, path: str, params: Params, headers: Mapping[str, str], timeout_s: float
    ) -> Iterator[httpx2.Response]:
        """An answer that is read as it comes; silence of `timeout_s` ends it with httpx2.ReadTimeout. One try."""
        timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S)
        with self._http.stream(
            "GET", f"{API}{path}", params=_drop_none(params), headers=headers, timeout=timeout
        ) as response:
            if response.is_error:
                response.read()
                self._require_success(response)
            yield response

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _request(
        self, method: str, path: str, body: Body | None, params: Params | None, key: str | None
    ) -> httpx2.Request:
        headers = {"Content-Type": body.media_type} if body else {}
        if key:
            headers["Idempotency-Key"] = key
        content = body.content if body else None
        return self._http.build_request(
            method, f"{API}{path}", params=_drop_none(params or {}), content=content, headers=headers
        )

    def _require_success(self, response: httpx2.Response) -> None:
        if not response.is_success:
            raise self._name_versions(error_of(response))

    def _parse(self, response: httpx2.Response, model: type[Model]) -> Model:
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            raise self._name_versions(unreadable(response, error)) from error

    def _name_versions(self, error: errors.APIError) -> errors.APIError:
        """The error, or what it comes of: a server that is older than this client. One try to ask it its version."""
        if not is_for_versions(error):
            return error
        try:
            answer = self._http.send(self._request("GET", "/version", None, None, None))
            return error_of_older_server(error, self.config.url, api.Version.model_validate_json(answer.content))
        except (httpx2.TransportError, ValidationError):
            return error

    def _unreachable(self, error: httpx2.TransportError) -> errors.ServerUnreachableError:
        return errors.ServerUnreachableError(self.config.url, describe(error))


def backoff(attempt: int) -> float:
    """Seconds before the next try: doubling, with jitter so that clients don't come back together."""
    longest: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(attempt, 20))
    return longest * random.uniform(0.5, 1.0)


def describe(error: httpx2.TransportError) -> str:
    """A lost connection in a few words."""
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    return str(error) or type(error).__name__


def _passes_soon(response: httpx2.Response) -> bool:
    """Whether the same request may well succeed in a moment; a twin of ours in flight is about to give its answer."""
    if response.status_code == HTTPStatus.CONFLICT:
        return problem_of(response).code == ProblemCode.IDEMPOTENCY_IN_FLIGHT
    return response.status_code in _RETRIED_STATUS


def _drop_none(params: Params) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _retry_after(response: httpx2.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return min(float(value), MAX_BACKOFF_S) if value.isdigit() else None


def iterate_pages(transport: Transport, path: str, item: type[Item], params: Params | None = None) -> Iterator[Item]:
    """Every item of a list, page by page."""
    cursor: str | None = None
    while True:
        page = transport.get(path, Page[item], {**(params or {}), "cursor": cursor})  # type: ignore[valid-type]  # generic at run time
        yield from page.items
        cursor = page.next
        if cursor is None:
            return
