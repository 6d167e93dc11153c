-- The log: what every other table can be built from again. Nothing here is ever updated or deleted by a service.
--
-- Names are COLLATE "C": they sort by code point, as in Python, whatever the server's locale.

CREATE TABLE lamina.turns (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    project_id text COLLATE "C",
    previous_session_id text COLLATE "C",
    occurred_at timestamptz NOT NULL,
    -- json and not jsonb: the text stays as it was written, with escaped NUL, lone surrogates and long numbers.
    header json NOT NULL,
    events json NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, user_id, session_id, turn_id),
    CONSTRAINT turns_year CHECK (occurred_at >= '0002-01-01Z' AND occurred_at < '9999-01-01Z')
);
CREATE INDEX turns_in_order ON lamina.turns (app, user_id, session_id, occurred_at, turn_id);
SELECT lamina.isolate_users('lamina.turns');

-- Derived from the turns: what the earliest turn that names a project or a predecessor says.
CREATE TABLE lamina.sessions (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    project_id text COLLATE "C",
    previous_session_id text COLLATE "C",
    first_seen timestamptz NOT NULL,
    PRIMARY KEY (app, user_id, session_id)
);
SELECT lamina.isolate_users('lamina.sessions');

-- A row commits together with what the event brought about, so a redelivery finds both or neither.
CREATE TABLE lamina.processed_events (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    event_id uuid NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    result jsonb,
    PRIMARY KEY (app, user_id, consumer, event_id)
);
-- For expiry: rows arrive in the order of their time, which BRIN answers at next to no cost of writing.
CREATE INDEX processed_events_age ON lamina.processed_events USING brin (processed_at);
SELECT lamina.isolate_users('lamina.processed_events');

GRANT SELECT, INSERT ON lamina.turns TO lamina_summarizer, lamina_episodic_embedder;
GRANT SELECT, INSERT, UPDATE ON lamina.sessions TO lamina_summarizer, lamina_episodic_embedder;
GRANT SELECT, INSERT ON lamina.processed_events TO
    lamina_summarizer, lamina_entity_extractor, lamina_episodic_embedder, lamina_compactor;
GRANT SELECT ON lamina.turns, lamina.sessions TO lamina_context;
