"""A user's mistake is one clear line on stderr, and never a traceback."""

import asyncio
import gzip
import json
import os
from pathlib import Path

import pytest
import typer

from lamina.errors import InvalidEvent
from lamina_services.cli.app import LaminaApp, command
from lamina_services.cli.main import app

NOBODY = "127.0.0.1:1"
"""Nobody listens there."""


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LAMINA_")]:
        monkeypatch.delenv(name)
    for name in ("PUBSUB_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAMINA_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("context", 2, "Missing option '--user'"),
        ("context --user ana --session s --token-budget many", 2, "Invalid value for '--token-budget'"),
        ("context --user ana --session s --colour", 2, "No such option"),
        ("remember", 2, "No such command 'remember'"),
        ("context --user ana --session s", 1, "no stack runs under"),
        ("context --user ana --session s --context-url nowhere", 1, "does not begin with http"),
        (
            f"context --user ana --session s --context-url http://{NOBODY}",
            1,
            "context service is unavailable",
        ),
        ("search dark --user ana --as-of yesterday", 1, "--as-of: 'yesterday' is no date"),
        ("publish missing.jsonl", 1, "missing.jsonl: No such file"),
        ("publish turns.jsonl", 1, "GOOGLE_CLOUD_PROJECT is not set"),
        ("publish broken.jsonl.gz", 1, "broken.jsonl.gz: Not a gzipped file"),
        ("publish cut.jsonl.gz", 1, "cut.jsonl.gz: the gzip data is cut off or damaged"),
        ("publish damaged.jsonl.gz", 1, "damaged.jsonl.gz: the gzip data is cut off or damaged"),
        ("migrate", 1, "no stack runs under"),
        ("migrate --grant reader", 1, "is not of the form ROLE=LOGIN"),
        (f"migrate --database-url postgresql://ana@{NOBODY}/lamina", 1, "database is unavailable"),
        ("migrate --database-url nonsense", 1, "LAMINA_DATABASE_URL: missing"),
        ("status", 1, "no stack runs under"),
        *(
            (f"{command} --home turns.jsonl{below}", 1, f"turns.jsonl{below} is not a folder")
            for command in ("up", "status", "down", "down --wipe")
            for below in ("", "/below")
        ),
    ],
)
def test_a_mistake_is_one_line(
    *,
    line: str,
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    turn = {"user_id": "ana", "session_id": "s", "user": "hello"}
    tmp_path.joinpath("turns.jsonl").write_text(json.dumps(turn), "utf-8")
    tmp_path.joinpath("broken.jsonl.gz").write_text("no gzip", "utf-8")
    packed = gzip.compress(json.dumps(turn).encode())
    tmp_path.joinpath("cut.jsonl.gz").write_bytes(packed[:-12])
    tmp_path.joinpath("damaged.jsonl.gz").write_bytes(packed[:10] + b"\xff" * 20 + packed[30:])
    with pytest.raises(SystemExit) as stopped:
        app(line.split())
    captured = capsys.readouterr()
    assert stopped.value.code == code
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("lamina: ")
    assert says in captured.err
    assert not captured.out


def test_bad_lines_are_named_each_and_nothing_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "turns.jsonl"
    good = {"user_id": "ana", "session_id": "s", "user": "hello"}
    nobody = {"session_id": "s", "user": "hello"}
    file.write_text(f"{json.dumps(good)}\n\n{{oops\n{json.dumps(nobody)}\n[1]\n", "utf-8")
    with pytest.raises(SystemExit) as stopped:
        app(["publish", str(file)])
    lines = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 1
    assert f"{file}: line 3: is not JSON" in lines[0]
    assert f"{file}: line 4: user_id: Field required" in lines[1]
    assert f"{file}: line 5: a turn is a JSON object" in lines[2]
    assert "nothing was published: 3 of 4 lines are bad" in lines[3]


def test_a_turn_too_large_to_carry_is_a_bad_line_and_nothing_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "turns.jsonl"
    good = {"user_id": "ana", "session_id": "s", "user": "hello"}
    file.write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'user': 'x' * 11_000_000})}\n", "utf-8")
    with pytest.raises(SystemExit) as stopped:
        app(["publish", str(file)])
    lines = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 1
    assert f"{file}: line 2: the message is 11,000," in lines[0]
    assert "nothing was published: 1 of 2 lines are bad" in lines[1]


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b'{"postgres": 1}', b"\xff\xfe"])
def test_passwords_that_cannot_be_read_are_named_with_the_remedy(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.joinpath("secrets.json").write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        app(["up", "--free-ports"])
    said = capsys.readouterr().err
    assert stopped.value.code == 1
    assert said.count("\n") == 1
    assert f"{home / 'secrets.json'} cannot be read" in said
    assert "`lamina down --wipe`" in said
    assert home.joinpath("secrets.json").read_bytes() == content


def _failing(error: BaseException) -> LaminaApp:
    """A program whose only command raises this."""

    @command
    async def fail() -> None:
        raise error

    program = LaminaApp(add_completion=False, pretty_exceptions_enable=False)
    program.command()(fail)
    return program


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyError("colour"), 70, "internal error: KeyError: 'colour' (LAMINA_DEBUG=1 shows the traceback)"),
        (ValueError("two\nlines"), 70, "internal error: ValueError: two lines (LAMINA_DEBUG=1"),
        (AssertionError(), 70, "internal error: AssertionError (LAMINA_DEBUG=1"),
        (EOFError("the end"), 70, "internal error: EOFError: the end (LAMINA_DEBUG=1"),
        (ExceptionGroup("tasks", [OSError("no disk")]), 70, "internal error: OSError: no disk (LAMINA_DEBUG"),
        (ExceptionGroup("tasks", [InvalidEvent(["user: is missing"])]), 1, "lamina: user: is missing"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_that_nobody_foresaw_is_one_line_too(
    error: Exception, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        _failing(error)([])
    said = capsys.readouterr().err
    assert stopped.value.code == code
    assert said.count("\n") == 1
    assert says in said


@pytest.mark.parametrize("error", [KeyError("colour"), EOFError("the end")], ids=["KeyError", "EOFError"])
def test_lamina_debug_lets_an_internal_error_through(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINA_DEBUG", "1")
    with pytest.raises(type(error)) as raised:
        _failing(error)([])
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (typer.Exit(3), 3),
        (typer.BadParameter("no"), 2),
        (asyncio.CancelledError(), 130),
        (typer.Abort(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_command_that_ends_itself_is_no_internal_error(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        _failing(error)([])
    assert stopped.value.code == code
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe"])
def test_a_broken_state_file_is_named_and_a_wipe_clears_it(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.joinpath("stack.json").write_bytes(content)
    home.joinpath("mine.txt").write_text("not Lamina's", "utf-8")
    with pytest.raises(SystemExit) as stopped:
        app(["status"])
    assert stopped.value.code == 1
    assert "stack.json cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        app(["down", "--wipe"])
    assert stopped.value.code == 0
    assert [path.name for path in home.iterdir()] == ["mine.txt"]
