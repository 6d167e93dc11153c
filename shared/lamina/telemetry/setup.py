"""Whether anything is recorded, and where it goes: OpenTelemetry's own variables say so.

OTEL_EXPORTER_OTLP_ENDPOINT sends traces and metrics there. OTEL_TRACES_EXPORTER (otlp, none) and
OTEL_METRICS_EXPORTER (otlp, prometheus, none, or several with commas) choose one by one.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache

from lamina.telemetry.logs import log

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_KNOWN = {"traces": {"otlp", "none"}, "metrics": {"otlp", "prometheus", "none"}}
NO_METRICS = b"# Nothing is measured here. OTEL_METRICS_EXPORTER=prometheus turns it on.\n"


@dataclass(frozen=True)
class Wanted:
    """The exporters to set up."""

    traces: frozenset[str]
    metrics: frozenset[str]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Wanted":
        """What the variables ask for. An exporter that we do not know is told in the log, and ignored."""
        if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return cls(frozenset(), frozenset())
        return cls(_chosen(environ, "traces"), _chosen(environ, "metrics"))


@dataclass
class _State:
    exposition: Callable[[], tuple[bytes, str]] | None = None
    after_work: Callable[[], Awaitable[None]] | None = None


_state = _State()


@cache
def start(service: str) -> None:
    """Once a process: set up what is wanted. A mistake in it is told in the log and costs no event."""
    wanted = Wanted.of(os.environ)
    if not wanted.traces and not wanted.metrics:
        return
    try:
        from lamina.telemetry import sdk  # noqa: PLC0415 - costs its import only where it is wanted

        _state.exposition, _state.after_work = sdk.start(service, wanted)
    except ImportError as error:
        missing = error.name or "a package"
        log.error("telemetry is off: %s is not installed; the extra lamina[telemetry] has it", missing)
    except Exception:
        log.exception("telemetry is off: it cannot be set up")


def exposition() -> tuple[bytes, str]:
    """All measurements as Prometheus reads them, and the media type."""
    if _state.exposition is None:
        return NO_METRICS, "text/plain; version=0.0.4; charset=utf-8"
    return _state.exposition()


async def after_work() -> None:
    """At the end of a push or a request: see `sdk.Sending`."""
    if _state.after_work is not None:
        await _state.after_work()


def _chosen(environ: Mapping[str, str], signal: str) -> frozenset[str]:
    told = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    named = {name.strip().lower() for name in told.split(",") if name.strip()}
    if not named:
        sent = environ.get(_ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        return frozenset({"otlp"}) if sent else frozenset()
    for strange in sorted(named - _KNOWN[signal]):
        log.warning("OTEL_%s_EXPORTER: %s is not one of ours", signal.upper(), strange)
    return frozenset(named & _KNOWN[signal] - {"none"})
