"""What a server is given when it starts: every setting, read once from the environment (prefix `DRUMLINE_`) and
handed down, and the clock that every deadline is measured with; a simulator hands in its own.
"""

import time
from importlib.metadata import version
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from drumline._log_lines import LogFormat
from drumline.contracts.heartbeats import CLAIM_S, HEARTBEAT_S, SUSPECT_S, TAKEOVER_S, ServerTimes, TimeScale

MIB = 1024 * 1024
MAX_NETWORKS = 64
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Settings(BaseSettings):
    """What an operator may choose. Units are in the names; every default works on a laptop."""

    model_config = SettingsConfigDict(env_prefix="DRUMLINE_", extra="ignore", frozen=True)

    data_dir: Path = Path("~/.drumline")
    """Where the embedded database and bundles live; 0700."""
    store: Annotated[str, Field(pattern=r"^$|^(s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*/?$")] = ""
    """`s3://bucket/prefix` where bundles are in an object store (`gs://` and `az://` are passed through, untested);
    endpoint and credentials are those of the environment, such as AWS_ENDPOINT_URL. Unset: in the data directory."""
    store_address_s: Annotated[int, Field(ge=10, le=3600)] = 300
    """How long an address is good by which a client writes a piece into the object store, or a worker reads one."""
    database_url: SecretStr = SecretStr("")
    """`sqlite:///...` or `postgresql+psycopg://...`; empty means SQLite in the data directory."""
    database_pool_size: Annotated[int, Field(ge=1, le=200)] = 10
    """Connections to PostgreSQL, or readers of SQLite."""
    broker_url: SecretStr = SecretStr("")
    """`redis://...` or `redis+socket:///...`; empty means no broker: workers learn of their work by heartbeat."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 7700
    """Port to listen on; 0 takes a free one."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names beside the loopback's that a request may give as `Host`, comma separated, without ports."""
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins beside the server's own that may use a cookie session, such as `https://drumline.example`."""
    behind_proxy: bool = False
    """Whether a proxy in front ends TLS; needed to listen on other than the loopback. Makes cookies Secure. From which
    address a request comes is another matter: `proxy_addresses`."""
    static_dir: Path | None = None
    """The built dashboard; unset means the one in the wheel, else `frontend/dist` of a checkout."""

    log_format: LogFormat = "text"
    """Layout of the log: `text`, or `json` for one object a line."""
    access_log: bool = False
    """Whether each answered request has a line in the log."""

    json_body_bytes: Annotated[int, Field(ge=1024, le=MIB)] = MIB
    """Cap of a request body that is one JSON text."""
    batch_body_bytes: Annotated[int, Field(ge=1024)] = 8 * MIB
    """Cap of a request body that submits many runs as records."""
    worker_body_bytes: Annotated[int, Field(ge=1024)] = 8 * MIB
    """Cap of a request body of a worker: a batch of telemetry."""
    bundle_bytes: Annotated[int, Field(ge=1024)] = 64 * MIB
    """Cap of a packed bundle."""
    project_bundle_bytes: Annotated[int, Field(ge=1024)] = 20 * 1024 * MIB
    """Of all bundles of a project; further ones are refused."""
    bundle_grace_days: Annotated[int, Field(ge=1, le=36_500)] = 7
    """A bundle is deleted once it was named for so many days by no run and by no job as its current version."""
    artifact_bytes: Annotated[int, Field(ge=1, le=4 * 1024 * MIB)] = 2 * 1024 * MIB
    """Cap of an artifact: a file that a program keeps with its run, or a directory as one zip."""
    project_artifact_bytes: Annotated[int, Field(ge=0)] = 100 * 1024 * MIB
    """Of all artifacts of a project; further ones are refused."""
    disk_kept_bytes: Annotated[int, Field(ge=0)] = 256 * MIB
    """No bundle and no artifact is taken that leaves less of the data directory's disk."""
    uploads_per_token: Annotated[int, Field(ge=1)] = 8
    """Bundles of one token and its sessions that are received at once; further ones wait."""
    head_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    """How long the head of a request may take to arrive, from the connection or its first byte on."""
    body_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """How long a body of JSON may take to arrive, as a whole."""
    upload_idle_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """How long an upload may bring nothing."""
    upload_bytes_per_s: Annotated[int, Field(ge=1)] = 256_000
    """What an upload must bring on average over `upload_window_s`."""
    upload_window_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Time over which the rate of an upload is measured."""
    reader_stall_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """A client that takes less than 64 KiB of its answer in this time, while more waits, is cut off."""
    keep_alive_s: Annotated[int, Field(ge=1, le=600)] = 10
    """How long a connection without a request stays open: longer than clients keep it, or a request meets its end."""
    connections: Annotated[int, Field(ge=16, le=50_000)] = 1_000
    """Connections open at once; fewer where the process may not open so many files."""
    connections_kept: Annotated[int, Field(ge=1, le=1_000)] = 64
    """More connections, for workers and health alone."""
    requests_per_token: Annotated[int, Field(ge=2)] = 256
    """Requests of one token and its sessions that may be under way at once, streams among them."""
    reads_per_token: Annotated[int, Field(ge=1)] = 4
    """Of those that only read, so many of a token and its sessions are worked on at once; further ones wait."""
    large_answers_per_token: Annotated[int, Field(ge=1)] = 8
    """Sources, comparisons and tables of batches, of up to 30 MB each, that a token may be reading at once."""
    exports: Annotated[int, Field(ge=1, le=32)] = 4
    """Files of metrics that a server writes at once, each of any length and with some 10 MB of memory."""

    proxy_addresses: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses and networks of the proxies in front, comma separated, such as `10.0.0.7,172.18.0.0/16`: of what they
    write into X-Forwarded-For the last entry that is none of them is the client. Unset: nobody is believed."""

    session_idle_s: Annotated[int, Field(ge=60)] = 8 * 3600
    """A browser session not used for so long is over."""
    session_absolute_s: Annotated[int, Field(ge=60)] = 7 * 86_400
    """A browser session is over after so long in any case."""
    login_code_s: Annotated[int, Field(ge=10, le=3600)] = 600
    """How long a one-time login code is good."""
    enrolment_s: Annotated[int, Field(ge=10, le=86_400)] = 600
    """How long a single-use enrolment token made by `drumline up` is good."""
    waiting_runs: Annotated[int, Field(ge=1)] = 50_000
    """Runs of one project that may wait for devices; further ones are refused."""
    logins_per_minute: Annotated[int, Field(ge=1)] = 10
    """Failed logins of one address in a minute, after which only a good credential is answered."""
    sessions_per_token: Annotated[int, Field(ge=1)] = 100
    """Browser sessions of one token that may be open at once."""
    login_codes_per_token: Annotated[int, Field(ge=1)] = 100
    """One-time login codes of one token that may wait at once."""
    tokens_per_token: Annotated[int, Field(ge=1)] = 1_000
    """Tokens made by one token that may be good at once."""

    heartbeat_s: Annotated[float, Field(gt=0, le=60)] = HEARTBEAT_S
    """How often a worker reports."""
    suspect_s: Annotated[float, Field(gt=0)] = SUSPECT_S
    """A host silent for so long is shown as suspect, and nothing else happens."""
    takeover_s: Annotated[float, Field(ge=45, le=7200)] = TAKEOVER_S
    """A host silent for so long has lost its members."""
    claim_s: Annotated[float, Field(gt=0)] = CLAIM_S
    """All members of an attempt must be claimed within this time."""
    time_scale: TimeScale = 1.0
    """Multiplies the four times above, the lead times of TERM and KILL and what workers wait between tries: 0.1 to 10.
    Tests run at 0.2; production has no reason to change it."""
    checkpoint_days: Annotated[int, Field(ge=1, le=36_500)] = 30
    """For so many days after a run's end others can resume from its checkpoints; then its workers delete them."""
    device_rates: dict[Annotated[str, Field(max_length=200)], Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """What a device of each kind costs an hour, as JSON: `{"NVIDIA H100 80GB HBM3": 2.5}`. Ledgers show it as cost; of
    a kind without a rate they show none."""
    currency: Annotated[str, Field(max_length=12)] = ""
    """What rates are in, such as `EUR`."""
    schedule_every_s: Annotated[float, Field(gt=0)] = 1.0
    """How often the scheduler looks without being woken."""
    ageing_unit_s: Annotated[float, Field(ge=1, le=86_400)] = 60.0
    """A waiting run gains a point of priority in this time, up to 2000 points."""
    lease_s: Annotated[float, Field(ge=1, le=300)] = 15.0
    """Of several servers on one PostgreSQL one runs the loops; another takes over when it is silent for so long."""
    deadlines_every_s: Annotated[float, Field(gt=0)] = 1.0
    """How often deadlines are looked at."""
    loops: bool = True
    """Whether this process may run the loops (schedule, cancel, deadlines, forget); with SQLite it must."""

    stalled_after_s: Annotated[float, Field(ge=1, le=30 * 86_400)] = 600.0
    """A run is shown and told as stalled once its steps got no further for so long, and for ten usual steps."""
    webhooks_per_project: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Webhooks that a project may have; 0 lets nobody make any."""
    webhook_http: bool = False
    """Whether webhooks may have http:// addresses: what they are told then crosses the network in the clear."""
    webhook_networks: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses and networks that webhooks may reach though they are not public, comma separated, such as
    `10.2.0.0/16`. Unset: none on the loopback, in a private network, or where a cloud keeps its credentials."""
    webhook_timeout_s: Annotated[float, Field(gt=0, le=60)] = 10.0
    """How long one post may take in all: finding the address, connecting, sending, and the head of the answer."""
    webhook_give_up_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 86_400.0
    """How long an alert is posted again and again to a webhook that does not take it."""

    live_poll_s: Annotated[float, Field(gt=0)] = 1.0
    """How often the live hub looks for events that another process wrote."""
    live_queue: Annotated[int, Field(ge=8)] = 1_000
    """Newest events of a run kept for its streams; a reader that falls further behind is told to start over."""
    live_clients: Annotated[int, Field(ge=1)] = 500
    """Streams open at once in this process."""
    live_clients_per_token: Annotated[int, Field(ge=1)] = 50
    """Streams open at once for one token and all sessions that it opened."""
    live_clients_kept: Annotated[int, Field(ge=0)] = 100
    """The last of `live_clients` are for tokens that have fewer than `live_clients_few` streams open."""
    live_clients_few: Annotated[int, Field(ge=1)] = 5
    """See `live_clients_kept`."""

    @field_validator("allowed_hosts", "allowed_origins", "proxy_addresses", "webhook_networks", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("proxy_addresses", "webhook_networks", mode="after")
    @classmethod
    def _parse_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > MAX_NETWORKS:
            raise ValueError(f"names {len(value)} addresses; at most {MAX_NETWORKS}: name their network")
        for entry in value:
            try:
                ip_network(entry)
            except ValueError:
                raise ValueError(f"'{entry}' is no address and no network; write 10.0.0.7 or 10.0.0.0/8") from None
        return value

    @field_validator("data_dir", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @model_validator(mode="after")
    def _safe_bind(self) -> Self:
        if self.host in LOOPBACK or (self.behind_proxy and self.allowed_hosts):
            return self
        raise ValueError(
            f"listening on {self.host} lets other machines in: set DRUMLINE_BEHIND_PROXY=1 (a proxy that ends TLS "
            "stands in front) and DRUMLINE_ALLOWED_HOSTS to the names it is reached by, or listen on 127.0.0.1"
        )

    @property
    def times(self) -> ServerTimes:
        """The protocol's times in force, `time_scale` included."""
        scale = self.time_scale
        return ServerTimes(
            scale=scale,
            heartbeat_s=scale * self.heartbeat_s,
            suspect_s=scale * self.suspect_s,
            takeover_s=scale * self.takeover_s,
            claim_s=scale * self.claim_s,
        )

    @property
    def url(self) -> str:
        """The database's URL; SQLite in the data directory unless one is set."""
        return self.database_url.get_secret_value() or f"sqlite:///{self.data_dir / 'drumline.db'}"

    @property
    def broker(self) -> str | None:
        """The broker's URL, or `None` where there is none."""
        return self.broker_url.get_secret_value() or None


VERSION = version("drumline")


class Clock(Protocol):
    """Tells the time. `now` in microseconds since 1970-01-01 UTC, as the database stores it."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000
