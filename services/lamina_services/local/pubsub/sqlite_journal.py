"""A journal in one SQLite file.

The broker commits before it confirms a publish, so a killed process loses no accepted message.
Acknowledgements are committed a moment later; losing one costs a redelivery, which at-least-once delivery
allows. The file is not flushed to the disk (`synchronous = OFF`): it survives the end of the process, not of
the machine.
"""

import asyncio
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from lamina_services.local.pubsub.faults import StateFileUnusable
from lamina_services.local.pubsub.journal import Journal, Saved, SavedDelivery

VERSION = 1
"""The `user_version` that the schema below sets."""

LAZY_COMMIT_SECONDS = 0.05

_SCHEMA = """
    BEGIN;
    CREATE TABLE topic (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE subscription (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        body BLOB NOT NULL
    );
    CREATE TABLE message (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE delivery (
        subscription INTEGER NOT NULL,
        number INTEGER NOT NULL,
        failures INTEGER NOT NULL DEFAULT 0,
        acked INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (subscription, number)
    ) WITHOUT ROWID;
    PRAGMA user_version = 1;
    COMMIT;
"""


class SqliteJournal(Journal):
    """A journal in a file that one emulator holds at a time. Open it inside the running loop."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._loop = asyncio.get_running_loop()
        self._pending: asyncio.TimerHandle | None = None
        self._ids: dict[str, int] = {}
        self._db = sqlite3.connect(path, timeout=2, isolation_level=None)
        try:
            self._open(path)
        except (sqlite3.Error, StateFileUnusable) as error:
            self._db.close()
            if isinstance(error, StateFileUnusable):
                raise
            raise StateFileUnusable(
                f"{path} cannot be used: {error}. Is another emulator running on it?"
            ) from error

    def _open(self, path: Path) -> None:
        self._db.executescript("""
            PRAGMA locking_mode = EXCLUSIVE;
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = OFF;
        """)
        self._db.execute("BEGIN EXCLUSIVE")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        self._db.execute("COMMIT")
        if version == 0:
            self._db.executescript(_SCHEMA)
        elif version != VERSION:
            raise StateFileUnusable(
                f"{path} has format {version}, this emulator reads {VERSION}. Delete the file."
            )

    def load(self) -> Saved:
        """Read everything, after dropping messages that no subscription waits for."""
        self._db.execute("""
            DELETE FROM message WHERE number NOT IN (SELECT number FROM delivery)
        """)
        saved = Saved()
        saved.topics = [
            body
            for (body,) in self._db.execute("""
            SELECT body FROM topic ORDER BY name
        """)
        ]
        for identity, name, body in self._db.execute("""
            SELECT id, name, body FROM subscription ORDER BY id
        """):
            self._ids[name] = identity
            saved.subscriptions.append(body)
        saved.messages = dict(
            self._db.execute("""
            SELECT number, body FROM message
        """).fetchall()
        )
        saved.deliveries = [
            SavedDelivery(subscription, number, failures, bool(acked))
            for subscription, number, failures, acked in self._db.execute("""
                SELECT subscription.name, delivery.number, delivery.failures, delivery.acked
                FROM delivery JOIN subscription ON subscription.id = delivery.subscription
                ORDER BY delivery.number
            """)
        ]
        return saved

    def put_topic(self, name: str, body: bytes) -> None:
        """Create or replace a topic."""
        self._write(
            """
            INSERT INTO topic (name, body) VALUES (:name, :body)
            ON CONFLICT (name) DO UPDATE SET body = excluded.body
        """,
            {"name": name, "body": body},
        )

    def delete_topic(self, name: str) -> None:
        """Forget a topic."""
        self._write(
            """
            DELETE FROM topic WHERE name = :name
        """,
            {"name": name},
        )

    def put_subscription(self, name: str, body: bytes) -> None:
        """Create or replace a subscription."""
        cursor = self._write(
            """
            INSERT INTO subscription (name, body) VALUES (:name, :body)
            ON CONFLICT (name) DO UPDATE SET body = excluded.body RETURNING id
        """,
            {"name": name, "body": body},
        )
        (self._ids[name],) = cursor.fetchone()

    def delete_subscription(self, name: str) -> None:
        """Forget a subscription and its deliveries."""
        identity = {"id": self._ids.pop(name)}
        self._write(
            """
            DELETE FROM delivery WHERE subscription = :id
        """,
            identity,
        )
        self._write(
            """
            DELETE FROM subscription WHERE id = :id
        """,
            identity,
        )

    def add_message(self, number: int, body: bytes) -> None:
        """Keep a message."""
        self._write(
            """
            INSERT INTO message (number, body) VALUES (:number, :body)
        """,
            {"number": number, "body": body},
        )

    def delete_message(self, number: int) -> None:
        """Forget a message."""
        self._write(
            """
            DELETE FROM message WHERE number = :number
        """,
            {"number": number},
        )

    def add_delivery(self, subscription: str, number: int) -> None:
        """Note that a subscription waits for a message."""
        self._write(
            """
            INSERT INTO delivery (subscription, number) VALUES (:id, :number)
        """,
            {"id": self._ids[subscription], "number": number},
        )

    def set_failures(self, subscription: str, number: int, failures: int) -> None:
        """Note how often a delivery failed."""
        self._write(
            """
            UPDATE delivery SET failures = :failures WHERE subscription = :id AND number = :number
        """,
            {"id": self._ids[subscription], "number": number, "failures": failures},
        )

    def set_acked(self, subscription: str, number: int, *, acked: bool) -> None:
        """Note that a retained message is acknowledged, or waits again."""
        self._write(
            """
            UPDATE delivery SET acked = :acked WHERE subscription = :id AND number = :number
        """,
            {"id": self._ids[subscription], "number": number, "acked": acked},
        )

    def delete_delivery(self, subscription: str, number: int) -> None:
        """Note that a subscription is done with a message."""
        self._write(
            """
            DELETE FROM delivery WHERE subscription = :id AND number = :number
        """,
            {"id": self._ids[subscription], "number": number},
        )

    def commit(self) -> None:
        """Make all changes so far survive the process."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Commit and release the file."""
        self.commit()
        self._db.close()

    def _write(self, statement: str, values: Mapping[str, object]) -> sqlite3.Cursor:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
        if self._pending is None:
            self._pending = self._loop.call_later(LAZY_COMMIT_SECONDS, self.commit)
        return self._db.execute(statement, values)
