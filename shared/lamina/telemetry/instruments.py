"""The declared metrics as instruments, and the tracer. They do nothing without a provider behind them."""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.trace import Tracer

from lamina.telemetry import declared
from lamina.telemetry.declared import MOST_APPS, OTHER_APPS, Metric

SCOPE = "lamina"


class Instruments:
    """What spans are started with and measurements recorded on."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self.tracer = tracer
        self.turns = _counter(meter, declared.TURNS)
        self.events = _counter(meter, declared.EVENTS)
        self.process_duration = _histogram(meter, declared.PROCESS_DURATION)
        self.lag = _histogram(meter, declared.LAG)
        self.dead_letters = _counter(meter, declared.DEAD_LETTERS)
        self.request_duration = _histogram(meter, declared.REQUEST_DURATION)
        self.context_duration = _histogram(meter, declared.CONTEXT_DURATION)
        self.degraded = _counter(meter, declared.DEGRADED)
        self.model_calls = _counter(meter, declared.MODEL_CALLS)
        self.model_tokens = _counter(meter, declared.MODEL_TOKENS)
        self.model_cost = _counter(meter, declared.MODEL_COST)
        self.model_duration = _histogram(meter, declared.MODEL_DURATION)
        self._apps: set[str] = set()

    def app(self, name: str) -> str:
        """The app as metrics tell it: whoever may publish could make up apps without end."""
        if name not in self._apps:
            if len(self._apps) >= MOST_APPS:
                return OTHER_APPS
            self._apps.add(name)
        return name


def _counter(meter: Meter, metric: Metric) -> Counter:
    return meter.create_counter(metric.name, metric.unit, metric.description)


def _histogram(meter: Meter, metric: Metric) -> Histogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
    )


# Those of the process: they begin to record once a service, or the agent that we run in, sets a provider.
_current = Instruments(trace.get_tracer(SCOPE), metrics.get_meter(SCOPE))


def instruments() -> Instruments:
    """The ones to use."""
    return _current


@contextmanager
def using(other: Instruments) -> Generator[None]:
    """Use others meanwhile: a test's own."""
    global _current  # noqa: PLW0603 - the one place that swaps them
    before, _current = _current, other
    try:
        yield
    finally:
        _current = before
