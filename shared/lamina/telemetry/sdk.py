"""OpenTelemetry's SDK, set up. The only module that imports it; imported by `setup.start` alone."""

import asyncio
import hashlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from lamina.dead_letters import release
from lamina.telemetry.scope import current
from lamina.telemetry.setup import Wanted

_EVERY_S = 5.0
_WITHIN_S = 2.0


class EventIds(RandomIdGenerator):
    """A new trace's id follows from the event that begins it: a redelivery lands in the same trace."""

    def generate_trace_id(self) -> int:
        """Of an event without a trace of its own; at random where there is no event."""
        scope = current.get()
        if scope is None or not scope.root_key:
            return super().generate_trace_id()
        return trace_id_of(scope.root_key)


def trace_id_of(key: str) -> int:
    """Hashed, since a sampler takes a trace id's lower half for random, which a UUID's is not."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:16], "big") or 1


def start(
    service: str, wanted: Wanted
) -> tuple[Callable[[], tuple[bytes, str]] | None, Callable[[], Awaitable[None]] | None]:
    """Set the process's providers. Gives how to read the measurements, and what to await after work."""
    given = {"service.namespace": "lamina", "service.version": release()}
    if "OTEL_SERVICE_NAME" not in os.environ:  # which would lose against what is given here
        given["service.name"] = f"lamina-{service}"
    resource = Resource.create(given)
    providers: list[TracerProvider | MeterProvider] = []
    if wanted.traces:
        traces = TracerProvider(resource=resource, id_generator=EventIds())
        traces.add_span_processor(_batches())
        trace.set_tracer_provider(traces)
        providers.append(traces)
    readers: list[MetricReader] = []
    exposition = None
    if "prometheus" in wanted.metrics:
        reader, exposition = _prometheus()
        readers.append(reader)
    if "otlp" in wanted.metrics:
        readers.append(_periodic())
    if readers:
        meters = MeterProvider(readers, resource)
        metrics.set_meter_provider(meters)
        providers.append(meters)
    if "otlp" not in wanted.traces | wanted.metrics:
        return exposition, None
    sending = Sending(
        lambda: [provider.force_flush(round(_WITHIN_S * 1000)) for provider in providers],
        every_s=_EVERY_S if "K_SERVICE" in os.environ else None,
    )
    sending.listen()
    return exposition, sending.after_work


class Sending:
    """Sends what waits to be sent where it could not wait any longer; each time for 2 s at most.

    `every_s`: at the end of work, that often. Cloud Run may take an instance's CPU between requests, and with
    it the threads that send. None: only once the process has been told to end. uvicorn then ends it by the
    signal itself, and nothing that is registered with atexit would run.
    """

    def __init__(
        self,
        send: Callable[[], object],
        *,
        every_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._every_s = every_s
        self._clock = clock
        self._last = clock()
        self._ending = False

    async def after_work(self) -> None:
        """At the end of a push or a request."""
        due = self._every_s is not None and self._clock() - self._last >= self._every_s
        if due or self._ending:
            self._last = self._clock()
            await asyncio.wait({asyncio.ensure_future(asyncio.to_thread(self._send))}, timeout=_WITHIN_S)

    def listen(self) -> None:
        """Send as soon as SIGTERM comes, before whoever listened to it until now is told."""
        before = signal.getsignal(signal.SIGTERM)

        def end(number: int, frame: FrameType | None) -> None:
            self._ending = True
            # In a thread: the signal may have interrupted someone who holds the lock that sending needs.
            sender = threading.Thread(target=self._send, daemon=True)
            sender.start()
            sender.join(_WITHIN_S)
            if callable(before):
                before(number, frame)
            else:
                signal.signal(number, before or signal.SIG_DFL)
                signal.raise_signal(number)

        with suppress(ValueError):  # outside the main thread nobody may listen
            signal.signal(signal.SIGTERM, end)


def _batches() -> BatchSpanProcessor:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - of an extra
        OTLPSpanExporter,
    )

    return BatchSpanProcessor(OTLPSpanExporter())


def _periodic() -> PeriodicExportingMetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - of an extra
        OTLPMetricExporter,
    )

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _prometheus() -> tuple[MetricReader, Callable[[], tuple[bytes, str]]]:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 - of an extra
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest  # noqa: PLC0415 - as above

    reader = PrometheusMetricReader(scope_info_enabled=False)
    return reader, lambda: (generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
