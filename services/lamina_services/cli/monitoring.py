"""Reads Pub/Sub's own counters from Cloud Monitoring, over its REST API."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina.google_token import TokenError, TokenSource
from lamina_services.cli.vitals import Queue

MONITORING_URL = "https://monitoring.googleapis.com"
WINDOW = timedelta(minutes=15)
"""How far back is looked: a metric is sampled every minute, and seen up to some minutes later."""

_METRICS = ("num_undelivered_messages", "oldest_unacked_message_age", "ack_message_count")


class CloudMonitoring:
    """The subscriptions of one project. A token goes over https only; plain http is for tests."""

    def __init__(self, http: httpx.AsyncClient, project: str, url: str = MONITORING_URL) -> None:
        self._http = http
        self._project = project
        self._url = url.rstrip("/")
        self._tokens = TokenSource()

    async def queues(self, now: datetime) -> dict[str, Queue]:
        """Each subscription's counters by its id; one without any sample is not among them.

        ConfigurationError where this login may not look, DependencyUnavailable where nobody answers.
        """
        headers = await self._headers()
        waiting, age, done = [await self._samples(name, now, headers) for name in _METRICS]
        return {name: _queue(name, waiting, age, done, now) for name in waiting}

    async def _headers(self) -> dict[str, str]:
        if not self._url.startswith("https://"):
            return {}
        try:
            return {"authorization": f"Bearer {await self._tokens.fetch()}"}
        except TokenError as error:
            raise ConfigurationError(
                f"no login to Google Cloud was found (gcloud auth application-default login): {error}"
            ) from error

    async def _samples(
        self, metric: str, now: datetime, headers: dict[str, str]
    ) -> dict[str, list[tuple[datetime, int]]]:
        """(when, value) by subscription, the latest first."""
        found: dict[str, list[tuple[datetime, int]]] = {}
        async for series in self._series(metric, now, headers):
            name = str(series["resource"]["labels"]["subscription_id"])
            points = [
                (datetime.fromisoformat(point["interval"]["endTime"]), int(point["value"]["int64Value"]))
                for point in series.get("points", ())
            ]
            found.setdefault(name, []).extend(points)
        return {name: sorted(points, reverse=True) for name, points in found.items() if points}

    async def _series(
        self, metric: str, now: datetime, headers: dict[str, str]
    ) -> AsyncIterator[dict[str, Any]]:
        parameters = {
            "filter": f'metric.type = "pubsub.googleapis.com/subscription/{metric}" '
            'AND resource.type = "pubsub_subscription"',
            "interval.startTime": _rfc3339(now - WINDOW),
            "interval.endTime": _rfc3339(now),
        }
        while True:
            page = await self._page(parameters, headers)
            for series in page.get("timeSeries", ()):
                yield series
            if not page.get("nextPageToken"):
                return
            parameters["pageToken"] = page["nextPageToken"]

    async def _page(self, parameters: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
        url = f"{self._url}/v3/projects/{self._project}/timeSeries"
        try:
            response = await self._http.get(url, params=parameters, headers=headers)
        except httpx.HTTPError as error:
            raise DependencyUnavailable("Cloud Monitoring", str(error) or type(error).__name__) from error
        if response.is_success:
            return response.json()
        said = " ".join(response.text.split())[:200]
        if response.status_code in (400, 401, 403, 404):
            raise ConfigurationError(f"Cloud Monitoring refused ({response.status_code}): {said}")
        raise DependencyUnavailable("Cloud Monitoring", f"HTTP {response.status_code}: {said}")


Samples = dict[str, list[tuple[datetime, int]]]


def _queue(name: str, waiting: Samples, age: Samples, done: Samples, now: datetime) -> Queue:
    counted_at, count = waiting[name][0]
    oldest_at = None
    if name in age:
        at, seconds = age[name][0]
        oldest_at = at.timestamp() - seconds
    acked = [(at, number) for at, number in done.get(name, ()) if number]
    return Queue(
        waiting=count,
        done=sum(number for _, number in acked),
        oldest_at=oldest_at if count else None,
        last_done_at=acked[0][0].timestamp() if acked else None,
        counted_since=min(counted_at, now - WINDOW).timestamp(),
    )


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
