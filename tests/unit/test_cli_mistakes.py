"""A user's mistake is one clear line on stderr, and never a traceback."""

import json
import os
from pathlib import Path

import pytest

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
        ("migrate", 1, "no stack runs under"),
        ("migrate --grant reader", 1, "is not of the form ROLE=LOGIN"),
        (f"migrate --database-url postgresql://ana@{NOBODY}/lamina", 1, "database is unavailable"),
        ("migrate --database-url nonsense", 1, "LAMINA_DATABASE_URL: missing"),
        ("status", 1, "no stack runs under"),
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


def test_a_broken_state_file_is_named_and_a_wipe_clears_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.joinpath("stack.json").write_text("{", "utf-8")
    home.joinpath("mine.txt").write_text("not Lamina's", "utf-8")
    with pytest.raises(SystemExit) as stopped:
        app(["status"])
    assert stopped.value.code == 1
    assert "stack.json cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        app(["down", "--wipe"])
    assert stopped.value.code == 0
    assert [path.name for path in home.iterdir()] == ["mine.txt"]
