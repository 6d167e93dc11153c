r"""The filter language of subscriptions, after https://cloud.google.com/pubsub/docs/subscription-message-filter.

    filter     = term { "AND" term } | term { "OR" term }      (mixing the two takes parentheses)
    term       = [ "NOT" | "-" ] ( "(" filter ")" | test )
    test       = "attributes" ":" key
               | "attributes" "." key ( "=" | "!=" ) string
               | "hasPrefix" "(" "attributes" "." key "," string ")"
    key        = letters, digits, "_" and "-", or a string
    string     = double-quoted, with the escapes \\ \" \n \r \t \xHH \uHHHH \UHHHHHHHH and octal

`attributes.k != "v"` also holds for a message that has no `k`.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from lamina_services.local.pubsub.faults import InvalidArgument

Predicate = Callable[[Mapping[str, str]], bool]

MAX_FILTER_BYTES = 256

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)|(?P<sign>!=|[-().,:=]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_PLAIN = frozenset("\\\"'`?")
_NEGATIONS = frozenset({"NOT", "-"})


def parse_filter(text: str) -> Predicate:
    """A predicate over attributes. An empty filter lets all pass; a malformed one raises InvalidArgument."""
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise InvalidArgument(f"The filter is longer than {MAX_FILTER_BYTES} bytes.")
    if not text.strip():
        return lambda _: True
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def parse(self) -> Predicate:
        predicate = self._filter()
        if self._peek():
            raise self._unexpected("the end")
        return predicate

    def _filter(self) -> Predicate:
        terms = [self._term()]
        joint = self._peek()
        if joint not in {"AND", "OR"}:
            return terms[0]
        while self._accept(joint):
            terms.append(self._term())
        return _all_of(terms) if joint == "AND" else _any_of(terms)

    def _term(self) -> Predicate:
        negative = self._peek() in _NEGATIONS
        if negative:
            self._at += 1
        if self._accept("("):
            term = self._filter()
            self._expect(")")
        elif self._accept("hasPrefix"):
            term = self._prefix_test()
        else:
            term = self._test()
        return _negation(term) if negative else term

    def _prefix_test(self) -> Predicate:
        self._expect("(")
        self._expect("attributes")
        self._expect(".")
        key = self._key()
        self._expect(",")
        prefix = self._string()
        self._expect(")")
        return lambda attributes: key in attributes and attributes[key].startswith(prefix)

    def _test(self) -> Predicate:
        self._expect("attributes")
        if self._accept(":"):
            key = self._key()
            return lambda attributes: key in attributes
        self._expect(".")
        key = self._key()
        negative = self._accept("!=")
        if not negative:
            self._expect("=")
        value = self._string()
        if negative:
            return lambda attributes: attributes.get(key) != value
        return lambda attributes: attributes.get(key) == value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _accept(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._unexpected(repr(token))

    def _key(self) -> str:
        token = self._peek()
        if token.startswith('"'):
            return self._string()
        if not token or not (token[0].isalnum() or token[0] == "_"):
            raise self._unexpected("an attribute key")
        self._at += 1
        return token

    def _string(self) -> str:
        token = self._peek()
        if not token.startswith('"'):
            raise self._unexpected("a double-quoted string")
        self._at += 1
        return _ESCAPE.sub(_unescape, token[1:-1])

    def _unexpected(self, wanted: str) -> InvalidArgument:
        found = repr(self._peek()) if self._peek() else "the end"
        return InvalidArgument(f"Invalid filter {self._text!r}: expected {wanted}, found {found}.")


def _tokens(text: str) -> Iterator[str]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidArgument(f"Invalid filter {text!r}: unexpected character at {at}.")
        at = match.end()
        yield match.group(match.lastgroup or 0)


def _unescape(match: re.Match[str]) -> str:
    hexadecimal = match[1] or match[2] or match[3]
    if hexadecimal:
        code = int(hexadecimal, 16)
        if code > 0x10FFFF:
            raise InvalidArgument(f"Invalid filter: {match[0]} is no character.")
        return chr(code)
    if match[4]:
        return chr(int(match[4], 8))
    letter = match[5]
    if letter in _PLAIN:
        return letter
    if letter not in _LETTERS:
        raise InvalidArgument(f"Invalid filter: unknown escape {match[0]!r}.")
    return _LETTERS[letter]


def _negation(inner: Predicate) -> Predicate:
    return lambda attributes: not inner(attributes)


def _all_of(terms: list[Predicate]) -> Predicate:
    return lambda attributes: all(term(attributes) for term in terms)


def _any_of(terms: list[Predicate]) -> Predicate:
    return lambda attributes: any(term(attributes) for term in terms)
