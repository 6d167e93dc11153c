"""Spans and measurements kept in memory, and log lines as they would be written."""

import io
import json
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lamina.telemetry.declared import Metric
from lamina.telemetry.instruments import SCOPE, Instruments, using
from lamina.telemetry.logs import JsonLines, log
from lamina.telemetry.sdk import EventIds

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """What was recorded since the beginning."""

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span that has ended, in the order of their ends."""
        return list(self.exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def measured(self) -> dict[str, list[tuple[Attributes, float]]]:
        """By metric: the sum of a counter, or the count of a histogram, for each set of attributes."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[Attributes, float]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if isinstance(metric.data, Sum | Histogram):
                        points = [
                            (dict(each.attributes or {}), _value(each)) for each in metric.data.data_points
                        ]
                        found[metric.name] = points
        return found

    def value(self, metric: Metric, **attributes: str) -> float:
        """The sum or count over all points that have these attributes; the names' last words suffice."""
        points = self.measured().get(metric.name, [])
        return sum(value for held, value in points if attributes.items() <= _short(held).items())


@contextmanager
def recording() -> Generator[Recorded]:
    """Record whatever Lamina does meanwhile in this process."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces = TracerProvider(id_generator=EventIds(), shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    with using(Instruments(traces.get_tracer(SCOPE), meters.get_meter(SCOPE))):
        yield Recorded(exporter, reader)
    traces.shutdown()
    meters.shutdown()


class Lines(io.StringIO):
    """What a log would have written."""

    @property
    def parsed(self) -> list[dict[str, Any]]:
        """Each line's fields."""
        return [json.loads(line) for line in self.getvalue().splitlines()]


@contextmanager
def logged() -> Generator[Lines]:
    """Keep every line that is logged meanwhile, by Lamina or by anything else."""
    lines = Lines()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    loggers = (log, logging.getLogger())
    level = log.level
    log.setLevel(logging.DEBUG)
    for each in loggers:
        each.addHandler(handler)
    try:
        yield lines
    finally:
        for each in loggers:
            each.removeHandler(handler)
        log.setLevel(level)


def _value(point: NumberDataPoint | HistogramDataPoint | Any) -> float:
    return float(point.value if isinstance(point, NumberDataPoint) else point.count)


def _short(attributes: Mapping[str, Any]) -> Attributes:
    return {name.rsplit(".", 1)[-1]: value for name, value in attributes.items()} | {
        name: attributes[full]
        for name, full in (("subscription", "messaging.destination.subscription.name"),)
        if full in attributes
    }
