"""What users say and agents answer, in three languages; the same slots are filled again and again."""

import random
from collections.abc import Iterator
from typing import Any

_THINGS = {
    "en": ("the checkout page", "the search index", "the billing job", "the login form", "the mail queue"),
    "es": ("la página de pago", "el índice de búsqueda", "la cola de correo", "el informe mensual"),
    "pt": ("a página de pagamento", "o índice de busca", "a fila de correio", "o relatório mensal"),
}
_TOOLS = ("PostgreSQL", "Valkey", "FastAPI", "gRPC", "Terraform", "pytest", "OpenTelemetry")
_SAID = {
    "en": (
        "I prefer {mode} mode for the editor.",
        "In every project, use {indent}.",
        "We decided to use {tool} for {thing}.",
        "Never deploy {thing} on a {day}.",
        "For this session, answer in {length} sentences.",
        "My favourite colour is {colour}.",
        "The staging server is at port {port}.",
        "How is {thing} doing with {tool} today? It answered slowly again.",
        "Look at {thing} once more, please, and tell me what {tool} says.",
    ),
    "es": (
        "Prefiero modo {mode} para el editor.",
        "En todos los proyectos, usa {indent}.",
        "Decidimos usar {tool} para {thing}.",
        "Nunca despliegues {thing} los {day}.",
        "Siempre ejecuta las pruebas antes de un commit.",
        "¿Cómo va {thing} con {tool} hoy? Otra vez respondió despacio.",
    ),
    "pt": (
        "Prefiro modo {mode} para o editor.",
        "Em todos os projetos, use {indent}.",
        "Decidimos usar {tool} para {thing}.",
        "Nunca faça deploy de {thing} na {day}.",
        "Sempre execute os testes antes de um commit.",
        "Como vai {thing} com {tool} hoje? Respondeu devagar outra vez.",
    ),
}
_WORDS = {
    "en": {
        "mode": ("dark", "light"),
        "indent": ("tabs", "spaces"),
        "day": ("Friday", "Monday"),
        "length": ("short", "long"),
        "colour": ("green", "blue", "red"),
    },
    "es": {"mode": ("oscuro", "claro"), "indent": ("tabulaciones", "espacios"), "day": ("viernes", "lunes")},
    "pt": {
        "mode": ("escuro", "claro"),
        "indent": ("tabs", "espaços"),
        "day": ("sexta-feira", "segunda-feira"),
    },
}
_ANSWERS = {
    "en": "I looked at {thing} with {tool} in mind and found {count} slow requests.",
    "es": "Miré {thing} con {tool} y encontré {count} peticiones lentas.",
    "pt": "Olhei {thing} com {tool} e encontrei {count} pedidos lentos.",
}
_NASTY = ("\x00 a NUL", "\ud83d alone", "支付 页面", "e\u0301 combined", "💥", "'; DROP TABLE turns; --")


def spoken(chance: random.Random, language: str) -> str:
    """A user's message of one to three sentences."""
    said = [
        _filled(chance, chance.choice(_SAID[language]), language) for _ in range(chance.choice((1, 1, 2, 3)))
    ]
    if chance.random() < 0.05:
        said.append(chance.choice(_NASTY))
    return " ".join(said)


def answer_to(chance: random.Random, language: str) -> str:
    """An agent's answer."""
    return _filled(chance, _ANSWERS[language], language)


def tool_call(chance: random.Random) -> Iterator[dict[str, Any]]:
    """A call with its response; now and then a long one, or one with an image."""
    call = {"id": f"c{chance.randrange(100)}", "name": "read_metrics", "args": {"of": chance.choice(_TOOLS)}}
    signed = {"function_call": call, "thought_signature": "AAE_-w=="}
    yield {
        "author": "coder",
        "content": {"role": "model", "parts": [signed]},
        "long_running_tool_ids": [call["id"]],
    }
    length = 40 if chance.random() < 0.05 else chance.randint(1, 4)
    rows = [{"minute": minute, "p95_ms": chance.randint(20, 900)} for minute in range(length)]
    parts: list[dict[str, Any]] = [
        {
            "function_response": {
                "id": call["id"],
                "name": call["name"],
                "response": {"rows": rows, "exact": 10**25},
            }
        }
    ]
    if chance.random() < 0.1:
        parts.append({"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}})
    yield {
        "author": "coder",
        "content": {"role": "user", "parts": parts},
        "actions": {"state_delta": {"app:seen": True, "gone": None}},
    }


def _filled(chance: random.Random, pattern: str, language: str) -> str:
    words = {name: chance.choice(choices) for name, choices in _WORDS[language].items()}
    return pattern.format(
        thing=chance.choice(_THINGS[language]),
        tool=chance.choice(_TOOLS),
        port=chance.choice((9001, 9002, 9003)),
        count=chance.randint(2, 40),
        **words,
    )
