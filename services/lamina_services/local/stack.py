"""The local stack: what the cloud provides, and the services, started together and stopped together."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from lamina.topology import load_topology
from lamina_services.local import logins
from lamina_services.local.home import Home, StackState
from lamina_services.local.identity import ProcessIdentity, end_all
from lamina_services.local.polling import until
from lamina_services.local.ports import LOOPBACK, HeldPort, can_connect, listening, port_of
from lamina_services.local.postgres import Postgres
from lamina_services.local.processes import Child, Children, Command
from lamina_services.local.valkey import Valkey

PROJECT = "lamina-local"
_PUBSUB_PORT, _POSTGRES_PORT, _VALKEY_PORT = 8710, 8711, 8712

_FRUGAL = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(2 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2 * 2**20),
}
"""Makes glibc give memory back after loading the model and after a batch: some 80 MB less for each service
that embeds. The threshold lies between the model's matrices and what one run of it needs."""
_BUSY = "episodic-embedder"
"""Embeds all day, and would spend a third of its time on giving memory back and asking for it again."""

Progress = Callable[[str], None]


class Stack:
    """One running stack under a home folder; use it as an async context manager.

    `env` is added to the services' environment (settings, model keys). With `preferred_ports` False every
    port is a free one, so that stacks can run side by side.
    """

    def __init__(
        self,
        home: Path,
        *,
        env: Mapping[str, str] | None = None,
        preferred_ports: bool = True,
        tick_s: float | None = None,
        progress: Progress = lambda _: None,
        timeout_s: float = 60,
    ) -> None:
        self.home = Home(home)
        self._topology = load_topology()
        self._env = {**os.environ, **(env or {})}
        self._preferred = preferred_ports
        self._tick_s = tick_s or self._topology.schedule.local_every_s
        self._progress = progress
        self._timeout_s = timeout_s
        self._cleanup = contextlib.AsyncExitStack()
        self._children = Children(self._write_state)
        self._ready = False
        self._state: StackState | None = None

    @property
    def state(self) -> StackState:
        """How to reach everything; RuntimeError unless started."""
        if self._state is None:
            raise RuntimeError("the stack is not running")
        return self._state

    async def __aenter__(self) -> Self:
        """Start everything. DependencyUnavailable or ConfigurationError says what would not start."""
        async with contextlib.AsyncExitStack() as cleanup:
            self.home.create()
            cleanup.enter_context(self.home.locked())
            await self._end_leftovers()
            cleanup.callback(self.home.forget_state)
            cleanup.push_async_callback(self._stop_children)
            await self._start(cleanup)
            self._cleanup = cleanup.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._progress("stopping")
        await self._cleanup.aclose()

    async def _start(self, cleanup: contextlib.AsyncExitStack) -> None:
        port = self._port_holder(cleanup)
        accounts = logins.accounts(self._topology)
        secrets = self.home.secret("postgres", "valkey", *accounts)
        postgres = Postgres(self.home, port(_POSTGRES_PORT), secrets["postgres"])
        valkey = Valkey(self.home, port(_VALKEY_PORT), secrets["valkey"])
        pubsub = await self._foreign_emulator() or f"{LOOPBACK}:{port(_PUBSUB_PORT)}"
        listeners = {
            name: cleanup.enter_context(listening(service.port if self._preferred else 0))
            for name, service in self._topology.services.items()
        }
        self._state = StackState(
            supervisor=ProcessIdentity.me("the stack"),
            project=self._project(),
            pubsub=pubsub,
            database_url=postgres.url(),
            valkey_url=valkey.url,
            services={name: f"http://{LOOPBACK}:{port_of(each)}" for name, each in listeners.items()},
        )
        self._write_state()

        async def database() -> None:
            await postgres.start(self._children, timeout_s=self._timeout_s)
            self._progress("PostgreSQL runs")
            await logins.prepare(postgres.url(), {name: secrets[name] for name in accounts})
            self._progress("the schema is up to date")

        async def buffer() -> None:
            await valkey.start(self._children, timeout_s=self._timeout_s)
            self._progress("Valkey runs")

        async def serve() -> None:
            for name, listener in listeners.items():
                login = logins.login_of(role) if (role := logins.role_of(name)) else None
                url = postgres.url(login, secrets[login]) if login else ""
                await self._children.start(self._service(name, listener.fileno(), url))

        await _together(database(), buffer(), self._start_messaging(pubsub), serve())
        await self._until_healthy()
        self._ready = True
        self._write_state()
        self._progress("ready")

    async def _foreign_emulator(self) -> str | None:
        """The emulator that PUBSUB_EMULATOR_HOST names, where one answers: the variable may be a leftover."""
        endpoint = self._env.pop("PUBSUB_EMULATOR_HOST", "")
        if endpoint and await can_connect(endpoint):
            self._env["PUBSUB_EMULATOR_HOST"] = endpoint
            self._progress(f"using the Pub/Sub emulator at {endpoint}")
            return endpoint
        if endpoint:
            self._progress(f"nothing listens at PUBSUB_EMULATOR_HOST={endpoint}: our own emulator is started")
        return None

    async def _start_messaging(self, endpoint: str) -> None:
        report = self.home.pubsub / "report.json"
        report.unlink(missing_ok=True)
        arguments = [
            *("--port", endpoint.rpartition(":")[2], "--state", str(self.home.pubsub / "state.sqlite")),
            *("--report", str(report), "--services", json.dumps(self.state.services)),
            *("--tick", str(self._tick_s)),
        ]
        env = {**self._env, "GOOGLE_CLOUD_PROJECT": self.state.project}
        child = await self._children.start(self._python("pubsub", "messaging", arguments, env))

        async def reported() -> bool:
            child.raise_if_it_crashes()
            return report.exists()

        await until(reported, timeout_s=self._timeout_s, what="Pub/Sub emulator", log=child.command.log)
        self._progress("Pub/Sub runs, the topics stand")

    def _service(self, name: str, descriptor: int, database_url: str) -> Command:
        env = {
            **({} if name == _BUSY else _FRUGAL),
            "OTEL_METRICS_EXPORTER": "prometheus",  # for /metrics; the environment may say otherwise
            **self._env,
            "GOOGLE_CLOUD_PROJECT": self.state.project,
            "PUBSUB_EMULATOR_HOST": self.state.pubsub,
            "LAMINA_VALKEY_URL": self.state.valkey_url,
            "LAMINA_VALKEY_IAM": "false",
            "LAMINA_DATABASE_URL": database_url,
            "LAMINA_DATABASE_IAM": "false",
        }
        return self._python(name, "serve", [name, str(descriptor)], env, descriptor)

    def _python(
        self, name: str, module: str, arguments: list[str], env: dict[str, str], *descriptors: int
    ) -> Command:
        argv = [sys.executable, "-m", f"lamina_services.local.{module}", *arguments]
        return Command(name, argv, self.home.logs / f"{name}.log", env=env, fds=descriptors)

    async def _until_healthy(self) -> None:
        async with httpx.AsyncClient(timeout=5) as http:
            await asyncio.gather(*(self._healthy(http, name) for name in self._topology.services))

    async def _healthy(self, http: httpx.AsyncClient, name: str) -> None:
        child = self._children.named(name)
        last = ""

        async def answers() -> bool:
            nonlocal last
            child.raise_if_it_crashes()
            healthy, last = await check_health(http, self.state.services[name])
            return healthy

        await until(
            answers,
            timeout_s=self._timeout_s,
            what=name,
            log=child.command.log,
            why=lambda: f"it says: {last}",
        )
        self._progress(f"{name} is healthy")

    async def _end_leftovers(self) -> None:
        """End what a killed stack left behind."""
        state = self.home.read_state()
        if state is not None:
            ended = await asyncio.to_thread(end_all, list(state.children))
            if ended:
                self._progress(f"ended what the last run left: {', '.join(ended)}")

    async def _stop_children(self) -> None:
        """The services first, so that they finish what they do; then what they lean on."""
        await self._children.stop(list(self._topology.services), ["pubsub"])

    def _write_state(self) -> None:
        if self._state is not None:
            children = tuple(self._children.identities())
            self._state = self._state.model_copy(update={"children": children, "ready": self._ready})
            self.home.write_state(self._state)

    def _port_holder(self, cleanup: contextlib.AsyncExitStack) -> Callable[[int], int]:
        def hold(preferred: int) -> int:
            held = HeldPort(preferred if self._preferred else 0)
            cleanup.callback(held.release)
            return held.number

        return hold

    def _project(self) -> str:
        """The emulator takes any project; Vertex AI needs the user's own."""
        vertex = self._env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true")
        return (self._env.get("GOOGLE_CLOUD_PROJECT") if vertex else None) or PROJECT

    def child(self, name: str) -> Child:
        """One of the processes, by its name; KeyError where there is none."""
        return self._children.named(name)


async def check_health(http: httpx.AsyncClient, url: str) -> tuple[bool, str]:
    """Whether a service says it is well, and what it says."""
    try:
        response = await http.get(f"{url}/healthz")
    except httpx.HTTPError as error:
        return False, str(error) or type(error).__name__
    return response.is_success, response.text[:300]


async def _together(*works: Coroutine[None, None, None]) -> None:
    """Do all at once; the first failure ends the others and is the one that is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
