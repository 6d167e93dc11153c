"""Time words of a question, in English, Spanish and Portuguese, as dates that memories can be held against.

Only what a question needs: a hint raises the memories it covers, it never hides the others.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_MONTHS = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro dezembro",
    )
    for number, name in enumerate(names.split(), start=1)
}
_NUMBERS = {
    name: number
    for names in (
        "one two three four five six seven eight nine ten",
        "uno dos tres cuatro cinco seis siete ocho nueve diez",
        "um dois tres quatro cinco seis sete oito nove dez",
    )
    for number, name in enumerate(names.split(), start=1)
} | {"a": 1, "an": 1, "un": 1, "una": 1, "uma": 1, "duas": 2, "couple": 2, "few": 3}
_UNITS = {
    **dict.fromkeys(("day", "days", "dia", "dias"), 1),
    **dict.fromkeys(("week", "weeks", "semana", "semanas"), 7),
    **dict.fromkeys(("month", "months", "mes", "meses"), 30),
    **dict.fromkeys(("year", "years", "ano", "anos"), 365),
}
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(_NUMBERS)})"
_UNIT = rf"(?P<unit>{'|'.join(_UNITS)})"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_YEAR = r"(?P<year>(?:19|20)\d\d)"

_DAYS_BACK = (
    (re.compile(r"\b(?:day before yesterday|anteayer|antes de ayer|anteontem)\b"), 2),
    (re.compile(r"(?<!before )(?<!antes de )\b(?:yesterday|ayer|ontem)\b"), 1),
    (re.compile(r"\b(?:today|hoy|hoje)\b"), 0),
)
_AGO = (
    re.compile(rf"\b{_COUNT} (?:of )?{_UNIT} (?:ago|atras)\b"),
    re.compile(rf"\b(?:hace|ha|faz) {_COUNT} {_UNIT}\b"),
)
_LAST = re.compile(
    r"\b(?:last (?P<en>week|month|year)|(?P<romance>semana|mes|ano) (?:pasad[oa]|passad[oa]|anterior))\b"
)
_ISO = re.compile(rf"\b{_YEAR}-(?P<month>0[1-9]|1[0-2])(?:-(?P<day>[0-3]\d))?\b")
_NAMED = (
    re.compile(
        rf"\b(?:(?P<day>[0-3]?\d)(?:st|nd|rd|th)?,? (?:of |de )?)?{_MONTH},? (?:of |de |del )?{_YEAR}\b"
    ),
    re.compile(rf"\b{_MONTH} (?P<day>[0-3]?\d)(?:st|nd|rd|th)?(?:,? {_YEAR})?\b"),
    re.compile(rf"\b(?P<day>[0-3]?\d)(?:st|nd|rd|th)? (?:of |de )?{_MONTH}\b"),
    re.compile(rf"\b(?:in|of|since|during|last|en|de|desde|em) {_MONTH}\b"),
    re.compile(rf"\b(?:in|of|since|during|en|de|desde|em|ano) {_YEAR}\b"),
)
_LIMIT = 4_000
"""Characters of a question that are read: what follows is a paste."""

_PREVIOUS_SESSION = re.compile(
    r"\b(?:(?:last|previous|earlier|prior) (?:session|conversation|chat)"
    r"|(?:ultima|anterior|pasada|passada) (?:sesion|sessao|conversa|conversacion|charla)"
    r"|(?:sesion|sessao|conversa|conversacion|charla) (?:anterior|pasada|passada|previa))\b"
)


@dataclass(frozen=True)
class TimeHint:
    """What a question says of when."""

    ranges: tuple[tuple[date, date], ...] = ()
    """First and last day (UTC), both included."""
    named: tuple[tuple[int | None, int | None, int | None], ...] = ()
    """(year, month, day), None where the question leaves it open."""
    previous_session: bool = False
    """The question speaks of the last session."""

    def covers(self, moment: datetime) -> bool:
        """Whether the moment is one that the question names."""
        day = moment.astimezone(UTC).date()
        fields = (day.year, day.month, day.day)
        return any(first <= day <= last for first, last in self.ranges) or any(
            all(asked in (None, is_) for asked, is_ in zip(name, fields, strict=True)) for name in self.named
        )


def time_hint(question: str, now: datetime) -> TimeHint:
    """The dates and sessions that a question's time words mean, as of `now`."""
    text = _plain(question)
    today = now.astimezone(UTC).date()
    return TimeHint(
        ranges=tuple(_relative(text, today)),
        named=tuple(dict.fromkeys(_absolute(text))),
        previous_session=bool(_PREVIOUS_SESSION.search(text)),
    )


def _relative(text: str, today: date) -> list[tuple[date, date]]:
    found = [(_back(today, days), _back(today, days)) for pattern, days in _DAYS_BACK if pattern.search(text)]
    for pattern in _AGO:
        for match in pattern.finditer(text):
            count, unit = match["count"], _UNITS[match["unit"]]
            middle = _back(today, (int(count) if count.isdecimal() else _NUMBERS[count]) * unit)
            slack = 0 if unit == 1 else unit // 2  # "two weeks ago" is a week, not a day
            found.append((_back(middle, slack), middle + timedelta(days=slack)))
    found.extend(_calendar_before(_UNITS[m["en"] or m["romance"]], today) for m in _LAST.finditer(text))
    return found


def _calendar_before(unit: int, today: date) -> tuple[date, date]:
    """The calendar week, month or year before today's."""
    if unit == 7:
        monday = _back(today, today.weekday())
        return _back(monday, 7), _back(monday, 1)
    start = today.replace(day=1) if unit == 30 else today.replace(month=1, day=1)
    last = _back(start, 1)
    return (last.replace(day=1) if unit == 30 else last.replace(month=1, day=1)), last


def _absolute(text: str) -> list[tuple[int | None, int | None, int | None]]:
    found: list[tuple[int | None, int | None, int | None]] = [
        (int(m["year"]), int(m["month"]), int(m["day"]) if m["day"] else None) for m in _ISO.finditer(text)
    ]
    for pattern in _NAMED:
        while match := pattern.search(text):
            groups = match.groupdict()
            year, day, month = groups.get("year"), groups.get("day"), groups.get("month")
            found.append(
                (int(year) if year else None, _MONTHS[month] if month else None, int(day) if day else None)
            )
            text = (
                text[: match.start()] + " , " + text[match.end() :]
            )  # a looser pattern must not read it too
    return found


def _back(day: date, days: int) -> date:
    return max(day, date.min + timedelta(days=days)) - timedelta(days=days)


def _plain(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text[:_LIMIT].casefold())
    return " ".join("".join(char for char in apart if not unicodedata.combining(char)).split())
