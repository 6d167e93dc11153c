"""Writes out what relative time words meant on the day they were said: "now" becomes "now (2026-01-05)"."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from lamina.models.offline.flat import flat

_WEEKDAYS = {
    name: number
    for number, names in enumerate(
        (
            "monday lunes segunda-feira",
            "tuesday martes terca-feira",
            "wednesday miercoles quarta-feira",
            "thursday jueves quinta-feira",
            "friday viernes sexta-feira",
            "saturday sabado",
            "sunday domingo",
        )
    )
    for name in names.split()
}
_NUMBERS = {
    word: number
    for words in (
        "one two three four five six seven eight nine ten",
        "uno dos tres cuatro cinco seis siete ocho nueve diez",
        "um dois tres quatro cinco seis sete oito nove dez",
    )
    for number, word in enumerate(words.split(), start=1)
} | {"a": 1, "an": 1, "un": 1, "una": 1, "uma": 1, "duas": 2}
_COUNT = rf"(?:\d{{1,3}}|{'|'.join(_NUMBERS)})"
_UNIT = r"(?:days?|weeks?|months?|years?|dias?|semanas?|mes(?:es)?|anos?)"
_SESSION = re.compile(
    r"\b(?:(?:last|previous|earlier|prior)\ (?:session|conversation|chat)"
    r"|(?:ultima|anterior|pasada|passada)\ (?:sesion|sessao|conversa|conversacion|charla)"
    r"|(?:sesion|sessao|conversa|conversacion|charla)\ (?:anterior|pasada|passada|previa))\b",
    re.IGNORECASE,
)
_DATED = re.compile(r"\s*\(\d{4}")

Meaning = Callable[[date, re.Match[str]], str]


def annotate(text: str, at: datetime, previous_session_id: str | None = None) -> str:
    """The text with the date after each relative time word, as of `at` (UTC), and the last session's id."""
    today = at.astimezone(UTC).date()
    plain = flat(text)
    notes: dict[int, str] = {}
    taken: list[tuple[int, int]] = []
    for pattern, meaning in _WORDS:
        for found in pattern.finditer(plain):
            clear = all(found.end() <= start or found.start() >= end for start, end in taken)
            if clear and not _DATED.match(plain, found.end()) and (note := _safely(meaning, today, found)):
                notes[found.end()] = note
                taken.append(found.span())
    if previous_session_id:
        for found in _SESSION.finditer(plain):
            notes[found.end()] = previous_session_id
    for position in sorted(notes, reverse=True):
        text = f"{text[:position]} ({notes[position]}){text[position:]}"
    return text


def _safely(meaning: Meaning, today: date, found: re.Match[str]) -> str:
    try:
        return meaning(today, found)
    except OverflowError:  # before year 1 or after 9999: leave the words as they are
        return ""


def _day(offset: int) -> Meaning:
    return lambda today, _: (today + timedelta(days=offset)).isoformat()


def _week(offset: int) -> Meaning:
    def week(today: date, _: re.Match[str]) -> str:
        return f"week of {today - timedelta(days=today.weekday() - 7 * offset)}"

    return week


def _month(offset: int) -> Meaning:
    def month(today: date, _: re.Match[str]) -> str:
        return _plus_months(today, offset).isoformat()[:7]

    return month


def _year(offset: int) -> Meaning:
    return lambda today, _: str(today.year + offset)


def _plus_months(day: date, months: int) -> date:
    index = day.year * 12 + day.month - 1 + months
    if not 12 <= index < 120_000:
        raise OverflowError
    return date(index // 12, index % 12 + 1, 1)


def _away(sign: int) -> Meaning:
    """So many days, weeks, months or years ago (-1) or from now (+1)."""

    def away(today: date, found: re.Match[str]) -> str:
        word = found["count"].lower()
        count = sign * (int(word) if word.isdecimal() else _NUMBERS[word])
        unit = found["unit"].lower()
        if unit.startswith("d"):
            return (today + timedelta(days=count)).isoformat()
        if unit.startswith(("w", "s")):
            return _week(count)(today, found)
        return _month(count)(today, found) if unit.startswith("m") else _year(count)(today, found)

    return away


def _weekday(today: date, found: re.Match[str]) -> str:
    """The next such day, today included; the one before today after "last"."""
    number = _WEEKDAYS[found["day"].lower()]
    if re.search(r"\b(?:last|pasado|passad[oa])\b", found.group(), re.IGNORECASE):
        return (today - timedelta(days=(today.weekday() - number - 1) % 7 + 1)).isoformat()
    return (today + timedelta(days=(number - today.weekday()) % 7)).isoformat()


_DAYS = "|".join(_WEEKDAYS)
_WORDS: tuple[tuple[re.Pattern[str], Meaning], ...] = tuple(
    (re.compile(rf"\b(?:{source})\b", re.IGNORECASE), meaning)
    for source, meaning in (
        (r"day before yesterday|anteayer|antes de ayer|anteontem", _day(-2)),
        (r"day after tomorrow|pasado manana|depois de amanha", _day(2)),
        (r"yesterday|ayer|ontem|last night|anoche", _day(-1)),
        # "manana" is the morning as well: only where nothing makes it one.
        (r"tomorrow|(?<!la )(?<!esta )(?<!por )(?<!de )manana(?! siguiente)|amanha", _day(1)),
        (r"today|tonight|this morning|this afternoon|hoy|esta manana|hoje|esta manha", _day(0)),
        (
            r"from now on|right now|just now|now|currently|a partir de ahora|de ahora en adelante"
            r"|ahora(?: mismo)?",
            _day(0),
        ),
        (r"actualmente|a partir de agora|de agora em diante|agora(?: mesmo)?|atualmente", _day(0)),
        (r"last week|(?:la )?semana pasada|(?:na )?semana passada", _week(-1)),
        (r"this week|esta semana", _week(0)),
        (r"next week|(?:la )?(?:proxima semana|semana que viene)|semana que vem", _week(1)),
        (r"last month|mes pasado|mes passado", _month(-1)),
        (r"this month|este mes", _month(0)),
        (r"next month|proximo mes|mes que viene|mes que vem", _month(1)),
        (r"last year|ano pasado|ano passado", _year(-1)),
        (r"this year|este ano", _year(0)),
        (r"next year|proximo ano|ano que viene|ano que vem", _year(1)),
        (rf"(?P<count>{_COUNT}) (?P<unit>{_UNIT}) (?:ago|atras)", _away(-1)),
        (rf"(?:hace|ha|faz) (?P<count>{_COUNT}) (?P<unit>{_UNIT})", _away(-1)),
        (
            rf"(?:in|within|dentro de|en|daqui a|em) (?P<count>{_COUNT}) (?P<unit>{_UNIT})(?! (?:of|de))",
            _away(1),
        ),
        (rf"(?:by|on|this|next|last|until|before|due) (?P<day>{_DAYS})", _weekday),
        (rf"(?:el|este|proximo|antes del|hasta el) (?P<day>{_DAYS})(?: (?:pasado|que viene))?", _weekday),
        (
            rf"(?:na|no|nesta|neste|ate|proxima|proximo|ate a|ate o) (?P<day>{_DAYS})"
            r"(?: (?:passad[oa]|que vem))?",
            _weekday,
        ),
    )
)
