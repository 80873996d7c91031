"""The agent put together: what starts when, and how it all ends."""

import asyncio
import contextlib
import fcntl
import importlib.metadata
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from drumline.checkpoints.store import volume_name
from drumline.contracts.base import is_id
from drumline.contracts.heartbeats import HEARTBEAT_S
from drumline.contracts.worker_api import DeviceReport, Enroll, HostSlice, HostWarning, Register
from drumline.slices import KnownSlice, simulated_hosts
from drumline_worker.agent import accelerators, host_cache
from drumline_worker.agent.agent_context import AgentContext, CoordinatorPort, Layout, own_address
from drumline_worker.agent.api import Api, Backoff, MemberKeys, RefusedError, UnreachableError
from drumline_worker.agent.host_cache import BundleCache
from drumline_worker.agent.identity import (
    EmptyTokenError,
    Enrolment,
    Identity,
    IdentityError,
    IdentityFile,
    OddTokenError,
    location_of,
)
from drumline_worker.agent.links import LauncherClient, LaunchError
from drumline_worker.agent.maintenance import end_strays, find_members, run_maintenance
from drumline_worker.agent.member_registry import MemberRegistry
from drumline_worker.agent.registration import CeleryChild, Registration, SupersededError
from drumline_worker.agent.reports import Reports
from drumline_worker.host.messages import DevicesListed
from drumline_worker.host.rundir import StartOrder
from drumline_worker.host.system import boot_id
from drumline_worker.settings import WorkerSettings

_LOG = logging.getLogger(__name__)
_KILL_S = 8.0
"""SIGKILL takes no longer than this, unless a process hangs in the kernel."""
_CELERY_S = 30.0
"""How long "ready" waits for the Celery child; without a broker, work comes by heartbeat."""
_LAST_WORDS_S = 1.0
"""How long a stopping agent tries to report ends to the server; the next agent reports the rest."""


class AgentError(Exception):
    """The worker cannot run; the message says why and what to do."""


class Agent:
    """One worker process. `run` returns after a drain, or raises AgentError."""

    def __init__(
        self, settings: WorkerSettings, enrolment: Enrolment | None, parent_fd: int | None, reports: Reports
    ) -> None:
        self._reports = reports
        self._settings = settings
        self._enrolment = enrolment
        self._parent_fd = parent_fd
        self._layout = Layout(settings.data_dir.absolute())
        self._checkpoints = (settings.checkpoint_dir or self._layout.checkpoints).absolute()
        self._identity_file = IdentityFile(self._layout.root)
        self._keys = MemberKeys(self._layout.keys)
        self._api = Api(settings.server, trust_env=not settings.is_local, keys=self._keys)
        self._launcher = LauncherClient(
            self._layout.home, parent_fd, self._without_launcher, is_simulated=bool(settings.simulate)
        )
        self._celery = CeleryChild(self._layout.home, self._on_notified, self._without_celery)
        self._registration: Registration | None = None
        self._members: MemberRegistry | None = None
        self._stop_wanted = asyncio.Event()
        self._kill_wanted = asyncio.Event()

    async def run(self) -> None:
        """Serves until SIGTERM or the end of the parent. Raises AgentError."""
        self._layout.create()
        with _only_agent_of(self._layout):
            self._watch_signals()
            serving = [asyncio.create_task(self._launcher.run()), asyncio.create_task(self._serve())]
            told = asyncio.create_task(self._stop_wanted.wait())
            try:
                done, _ = await asyncio.wait([*serving, told], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await task
                await self._wind_down()
            except SupersededError as error:
                await self._step_down()
                raise AgentError(f"{error}; what ran here was ended. Give each worker a name of its own") from None
            finally:
                await _cancel([*serving, told])
                if self._members is not None:
                    await self._members.abandon()
                await self._api.close()

    async def _serve(self) -> None:
        introduction, _ = await asyncio.gather(self._describe_host(), self._identify())
        found = [each for each in find_members(self._layout, introduction.place) if self._may_speak_for(each)]
        adopted = {order.claimed.member for order in found}
        self._keys.keep_only(adopted)
        # Before registering, which tells the server what is dead: it gives those devices to others on our word.
        unproven = await end_strays(self._layout.runs, lambda member: member not in adopted)
        await end_strays(self._layout.probes, lambda _: True)
        in_use = {Path(order.compile_cache) for order in found}
        await asyncio.to_thread(host_cache.clear_compiled, self._layout.compile_cache, in_use)
        introduction = introduction.model_copy(update={"unproven": tuple(filter(_is_member, unproven))})
        self._registration = Registration(self._api, introduction, self._on_refused)
        bundles = BundleCache(self._layout.bundles, self._api, self._settings.bundle_cache_bytes)
        context = AgentContext(
            self._api,
            self._registration,
            self._launcher,
            bundles,
            self._layout,
            self._checkpoints,
            self._open_coordinator_port,
            host_cache.CompiledEntries(self._layout.compiled_entries),
            introduction.place,
            self._keys,
            self._settings.spool_bytes,
        )
        self._members = MemberRegistry(context)
        for order in found:
            self._members.adopt(order)
        with _first_of_group():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._celery.run())
                tasks.create_task(run_maintenance(context, self._settings.compile_cache_bytes))
                tasks.create_task(self._registration.run(self._members, self._celery.use))
                tasks.create_task(self._report_ready(self._registration, len(introduction.devices)))

    def _may_speak_for(self, order: StartOrder) -> bool:
        """Whether the server would listen; else it is told that the member is lost."""
        return not order.has_key or self._keys.find(order.claimed.member) is not None

    async def _report_ready(self, registration: Registration, devices: int) -> None:
        self._reports.report_activity("registers with the server")
        await registration.until_registered()
        self._reports.report_activity("starts its Celery child")
        await self._celery.until_settled(_CELERY_S)
        self._reports.ready(devices)

    def _on_notified(self) -> None:
        if self._registration is not None:
            self._registration.notify()

    def _without_launcher(self, flaw: str) -> None:
        """At the start this ends the worker; later it keeps serving, for the sake of what runs already."""
        _LOG.error("no program can start here: %s", flaw)
        self._reports.trouble("launcher", f"{flaw}. No program can start there until it comes up")

    def _without_celery(self, flaw: str) -> None:
        _LOG.error("runs start up to %.0f s later: %s", HEARTBEAT_S, flaw)
        self._reports.trouble("celery", f"{flaw}. Runs start all the same, up to {HEARTBEAT_S:.0f} s later")

    def _open_coordinator_port(self) -> CoordinatorPort:
        return CoordinatorPort(self._settings.address or own_address(self._settings.server))

    async def _identify(self) -> None:
        try:
            identity = self._identity_file.load()
        except IdentityError as error:
            raise AgentError(str(error)) from None
        if identity is None:
            await self._enroll()
        else:
            self._api.use_token(identity.token)

    async def _enroll(self) -> None:
        token = await self._enrolment_token()
        backoff = Backoff()
        while True:
            try:
                enrolled = await self._api.enroll(Enroll(name=self._settings.name), token)
            except UnreachableError as error:
                wait_s = backoff.next_s()
                _LOG.warning("no answer from %s (%s); trying again in %.1f s", self._settings.server, error, wait_s)
                await asyncio.sleep(wait_s)
            except RefusedError as error:
                raise AgentError(f"the server refuses the enrolment token ({error}); make a new one") from None
            else:
                break
        identity = Identity(host=enrolled.host, token=enrolled.token)
        self._identity_file.save(identity)
        self._api.use_token(identity.token)

    async def _enrolment_token(self) -> SecretStr:
        if self._enrolment is None:
            raise AgentError(
                "this worker is not enrolled; start it with --enroll-token-file and a token made by the server"
            )
        enrolment, self._enrolment = self._enrolment, None
        try:
            return await enrolment.token()
        except EmptyTokenError:
            raise AgentError("the enrolment token is empty; make a new one") from None
        except OddTokenError:
            raise AgentError("the enrolment token holds a character that no token does; copy it again") from None

    def _checkpoint_store(self) -> str:
        if self._settings.checkpoint_dir is None:
            return ""
        try:
            return volume_name(self._checkpoints)
        except OSError as error:
            raise AgentError(f"the checkpoint directory {self._checkpoints} can't be used: {error.strerror}") from None

    async def _list_devices(self) -> DevicesListed:
        if not self._settings.simulate:
            return await self._launcher.list_devices(self._settings.cpu_devices)
        await self._launcher.until_ready()
        return DevicesListed(devices=_simulated_devices(self._settings.simulate, self._settings.simulated_host))

    async def _describe_host(self) -> Register:
        self._reports.report_activity("imports JAX and looks for devices")
        try:
            listed = await self._list_devices()
        except LaunchError as error:
            raise AgentError(f"the devices of this host can't be listed: {error}") from None
        devices = listed.devices
        _LOG.info("found %d devices: %s", len(devices), ", ".join(sorted({device.kind for device in devices})))
        warnings = () if self._settings.simulate else await asyncio.to_thread(_find_unused_accelerators, listed)
        for warning in warnings:
            _LOG.warning("%s %s", warning.message, warning.fix)
            self._reports.trouble("devices", f"{warning.message} {warning.fix}")
        return Register(
            name=self._settings.name,
            checkpoint_store=self._checkpoint_store(),
            slice=_simulated_slice(self._settings),
            boot_id=boot_id(),
            place=location_of(self._layout.root),
            version=importlib.metadata.version("drumline"),
            jax_version=importlib.metadata.version("jax"),
            cpu_count=os.cpu_count() or 1,
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            devices=devices,
            notices=warnings,
        )

    async def _on_refused(self, error: RefusedError) -> None:
        """A token that died is replaced if we were given a fresh one; a worker that never served gives up.

        Raises SupersededError for a token that ended while we served: revoked, or another enrolled under our name.
        """
        served = self._registration is not None and self._registration.ever_registered
        if error.status == HTTPStatus.UNAUTHORIZED and served:
            raise SupersededError(f"the server does not take this worker's token any more ({error})")
        if error.status == HTTPStatus.UNAUTHORIZED and self._enrolment is not None:
            await self._enroll()
        elif served:
            _LOG.error("the server refuses this worker: %s", error.versions_differ or error)
        elif error.versions_differ is not None:
            raise AgentError(error.versions_differ)
        else:
            raise AgentError(
                f"the server refuses this worker ({error}); if its host was removed, delete "
                f"{self._layout.root / 'worker.json'} and enrol again"
            )

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        if self._parent_fd is not None:
            loop.add_reader(self._parent_fd, self._on_parent_exit, self._parent_fd)

    def _on_stop_signal(self) -> None:
        """The first signal drains, the second kills."""
        if self._stop_wanted.is_set():
            self._kill_wanted.set()
        self._stop_wanted.set()

    def _on_parent_exit(self, parent_fd: int) -> None:
        asyncio.get_running_loop().remove_reader(parent_fd)
        _LOG.warning("the parent process is gone; stopping everything")
        self._kill_wanted.set()
        self._stop_wanted.set()

    async def _step_down(self) -> None:
        """Nothing may keep running here whose devices the server gives to others; it is told that nothing does."""
        if self._members is not None:
            await self._members.kill(_KILL_S)
            await self._members.wait_for_reports(_LAST_WORDS_S)

    async def _wind_down(self) -> None:
        if self._members is None or self._registration is None:
            return
        self._registration.drain()  # first: else the server may place here again what the members hand over
        drained = asyncio.create_task(self._members.drain())
        killed = asyncio.create_task(self._kill_wanted.wait())
        await asyncio.wait([drained, killed], return_when=asyncio.FIRST_COMPLETED)
        if self._kill_wanted.is_set():
            await self._members.kill(_KILL_S)
            await asyncio.wait([drained], timeout=_LAST_WORDS_S)
        elif self._registration.ever_registered:
            await self._registration.until_drain_is_known(_LAST_WORDS_S)
        await _cancel([drained, killed])


def _simulated_devices(asked: str, number: int) -> tuple[DeviceReport, ...]:
    """What a host of that slice would report; CPU devices stand for its chips."""
    host = simulated_hosts(asked)[number]
    return tuple(
        DeviceReport(
            platform=host.platform,
            index=index,
            kind=host.kind,
            coords=None if place is None else place[:3],
            core_on_chip=None if place is None else place[3],
            simulated=True,
        )
        for index, place in enumerate(host.places)
    )


def _simulated_slice(settings: WorkerSettings) -> HostSlice | None:
    """GPUs, and what this host really has, are of none: what a machine's chips are linked with it does not tell us."""
    if not settings.simulate or simulated_hosts(settings.simulate)[settings.simulated_host].platform != "tpu":
        return None
    topology = str(KnownSlice.parse(settings.simulate))
    return HostSlice(name=settings.slice_name or topology, topology=topology)


def _find_unused_accelerators(listed: DevicesListed) -> tuple[HostWarning, ...]:
    platforms = {device.platform for device in listed.devices}
    return accelerators.find_unused(
        accelerators.find_drivers(), platforms, listed.flaws, accelerators.installed_packages()
    )


def _is_member(name: str) -> bool:
    return is_id(name, "mem")


@contextlib.contextmanager
def _only_agent_of(layout: Layout) -> Iterator[None]:
    """Two agents on one data directory would fight over its members. Raises AgentError."""
    descriptor = os.open(layout.root / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AgentError(f"another worker runs on {layout.root}; give this one a --data-dir of its own") from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _first_of_group() -> Iterator[None]:
    """Raises the first error of a group of tasks in the place of the group."""
    try:
        yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:  # Any: results are of no interest
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
