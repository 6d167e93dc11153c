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
    -- The model would not take the turn: the lines go without it until its dead letter is replayed with success.
    set_aside boolean NOT NULL DEFAULT false,
    CONSTRAINT summary_covers_turn_once PRIMARY KEY (app, user_id, session_id, turn_id)
);
SELECT lamina.isolate_users('lamina.summary_turns');

-- A session and those before it (depth 0, 1, …): where an inherited summary is looked for, at most 16 sessions back.
-- `of_previous` stands in for what the session itself has not said yet. The caller's own rights apply.
CREATE FUNCTION lamina.lineage(of_app text, of_user text, of_session text, of_previous text)
RETURNS TABLE (session_id text, previous_session_id text, depth integer)
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE chain AS (
        SELECT
            of_session COLLATE "C" AS session_id,
            coalesce(
                of_previous COLLATE "C",
                (
                    SELECT s.previous_session_id
                    FROM lamina.sessions AS s
                    WHERE s.app = of_app AND s.user_id = of_user AND s.session_id = of_session
                )
            ) AS previous_session_id,
            0 AS depth
        UNION ALL
        SELECT c.previous_session_id, s.previous_session_id, c.depth + 1
        FROM chain AS c
        LEFT JOIN lamina.sessions AS s
            ON s.app = of_app AND s.user_id = of_user AND s.session_id = c.previous_session_id
        WHERE c.previous_session_id IS NOT NULL AND c.depth < 16
    )
    SELECT c.session_id, c.previous_session_id, c.depth FROM chain AS c
$$;

GRANT SELECT, INSERT ON lamina.summaries, lamina.summary_turns TO lamina_summarizer;
GRANT UPDATE (version, set_aside) ON lamina.summary_turns TO lamina_summarizer;
GRANT SELECT ON lamina.summaries, lamina.summary_turns TO lamina_context;
