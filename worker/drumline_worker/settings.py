"""Settings of a worker, read once."""

import socket
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from drumline._log_lines import LogFormat
from drumline.slices import MAX_SIMULATED_HOSTS, simulated_hosts
from drumline_worker.host.rundir import SPOOL_BYTES

_LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")


class WorkerSettings(BaseSettings):
    """How one worker runs. Every value can come from the environment with the prefix `DRUMLINE_WORKER_`."""

    model_config = SettingsConfigDict(env_prefix="DRUMLINE_WORKER_", frozen=True)

    server: str = Field(default="http://127.0.0.1:7700", max_length=2_000, pattern=r"^https?://[!-~]+$")
    """Base address of the server."""
    data_dir: Path = Path.home() / ".drumline" / "worker"
    """Identity, run directories, bundles and compilation caches; made 0700."""
    name: str = Field(default_factory=socket.gethostname, min_length=1, max_length=253)
    """What people call this host."""
    address: str = Field(default="", max_length=253, pattern=r"^[A-Za-z0-9.:-]*$")
    """Where other hosts reach this one when a run spans several; empty: the address it reaches the server from."""
    cpu_devices: int = Field(default=8, ge=0, le=1_024)
    """Simulated CPU devices where there is no accelerator."""
    simulate: str = Field(default="", max_length=40)
    """The slice that this host's CPU devices stand for, such as `v4:2x2x4`; empty for the devices that it has."""
    simulated_host: int = Field(default=0, ge=0, lt=MAX_SIMULATED_HOSTS)
    """Which host of that slice this one stands for."""
    slice_name: str = Field(default="", max_length=100)
    """Names that slice, where a fleet has several alike; default: what is simulated, such as `v4:2x2x4`."""
    bundle_cache_bytes: int = Field(default=2 * 1024**3, ge=0)
    """Bundles kept on disk beyond their use."""
    compile_cache_bytes: int = Field(default=4 * 1024**3, ge=0)
    """Compiled programs kept on disk; those of the job versions that were not run for longest go first."""
    spool_bytes: int = Field(default=SPOOL_BYTES, ge=8 * 1024**2)
    """Telemetry of each run on disk that the server has not taken yet; beyond it the run's program waits."""
    log_format: LogFormat = "text"
    """Layout of the agent's log: `text`, or `json` for one object a line."""
    checkpoint_dir: Path | None = None
    """A volume for checkpoints that other hosts mount too, so that any of them resumes a run; default: a directory
    of this host in `data_dir`, which ties the retries of a run to the host."""

    @model_validator(mode="after")
    def _check_simulated(self) -> Self:
        hosts = simulated_hosts(self.simulate) if self.simulate else ()
        if self.simulate and self.simulated_host >= len(hosts):
            raise ValueError(f"{self.simulate} has {len(hosts)} hosts, counted from 0; got {self.simulated_host}")
        return self

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, so that no proxy stands between."""
        return self.server.startswith(_LOOPBACK)
