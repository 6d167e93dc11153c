-- Rolling summaries: versions are never overwritten, and a turn is covered by one version only.

CREATE TABLE lamina.summaries (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    version integer NOT NULL CHECK (version > 0),
    -- A list of SummaryLine. json and not jsonb: a line's text may hold an escaped NUL.
    lines json NOT NULL,
    model text NOT NULL,
    event_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT summary_version_once PRIMARY KEY (app, user_id, session_id, version)
);
SELECT lamina.isolate_users('lamina.summaries');

CREATE TABLE lamina.summary_turns (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    CONSTRAINT summary_covers_turn_once PRIMARY KEY (app, user_id, session_id, turn_id)
);
SELECT lamina.isolate_users('lamina.summary_turns');

GRANT SELECT, INSERT ON lamina.summaries, lamina.summary_turns TO lamina_summarizer;
GRANT SELECT ON lamina.summaries, lamina.summary_turns TO lamina_context;
