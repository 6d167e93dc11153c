-- What became of a turn: an index of dead letters, and what an operator may know of all users' turns together.

-- One row a turn and subscription that gave up on it. The queue is the truth: what cannot be attributed to a turn is
-- only there, and a letter that was purged there stays here until it expires.
CREATE TABLE lamina.dead_letters (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    -- '' where the turn did not say.
    session_id text COLLATE "C" NOT NULL,
    subscription text COLLATE "C" NOT NULL,
    error text NOT NULL,
    reason text NOT NULL,
    failures integer NOT NULL CHECK (failures > 0),
    service text NOT NULL,
    first_seen timestamptz,
    parked_at timestamptz NOT NULL,
    trace_id text NOT NULL,
    event_id text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    -- A receipt is asked for by user and turn; who asks may not know the session.
    PRIMARY KEY (app, user_id, turn_id, session_id, subscription)
);
CREATE INDEX dead_letters_age ON lamina.dead_letters (parked_at);
SELECT lamina.isolate_users('lamina.dead_letters');

GRANT SELECT, INSERT, UPDATE ON lamina.dead_letters TO lamina_dead_letter_recorder;
GRANT SELECT ON lamina.dead_letters, lamina.processed_events TO lamina_context;

-- The id of the event that recorded the turn: what processed_events knows it by. NULL for turns logged before.
ALTER TABLE lamina.turns ADD COLUMN recorded_event uuid;
-- Rows arrive in the order of their time.
CREATE INDEX turns_age ON lamina.turns USING brin (recorded_at);

-- The observer reads keys, dates and the class of an error, and no content: no events, no lines, no reasons.
GRANT SELECT (app, user_id, session_id, turn_id, occurred_at, recorded_at, recorded_event)
    ON lamina.turns TO lamina_observer;
GRANT SELECT (app, user_id, consumer, event_id, processed_at) ON lamina.processed_events TO lamina_observer;
GRANT SELECT (app, user_id, session_id, turn_id, set_aside) ON lamina.summary_turns TO lamina_observer;
GRANT SELECT (app, user_id, session_id, turn_id, subscription, error, parked_at)
    ON lamina.dead_letters TO lamina_observer;
CREATE POLICY observer_reads_keys ON lamina.turns FOR SELECT TO lamina_observer USING (true);
CREATE POLICY observer_reads_keys ON lamina.processed_events FOR SELECT TO lamina_observer USING (true);
CREATE POLICY observer_reads_keys ON lamina.summary_turns FOR SELECT TO lamina_observer USING (true);
CREATE POLICY observer_reads_keys ON lamina.dead_letters FOR SELECT TO lamina_observer USING (true);

-- For each subscription that learns from turns: how many of the turns logged since then it has not processed, the one that
-- has waited longest, since when, and when it last processed any. What it has parked does not wait. A session's newest
-- turns wait for no summary: one is due from `summary_after` turns on.
CREATE FUNCTION lamina.stage_lag(since timestamptz, summary_after integer)
RETURNS TABLE (
    subscription text, waiting bigint, oldest timestamptz,
    app text, user_id text, session_id text, turn_id text, last_done timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    WITH stages (subscription) AS (VALUES ('summarizer'), ('entity-extractor'), ('episodic-embedder')),
    uncovered AS (
        -- A turn is due when as many have come after it: the last of them says since when.
        SELECT t.app, t.user_id, t.session_id, t.turn_id,
               lag(t.recorded_at, stage_lag.summary_after - 1) OVER (
                   PARTITION BY t.app, t.user_id, t.session_id ORDER BY t.occurred_at DESC, t.turn_id DESC
               ) AS due_at
        FROM lamina.turns AS t
        WHERE t.recorded_at >= stage_lag.since
          AND NOT EXISTS (
              SELECT FROM lamina.summary_turns AS c
              WHERE c.app = t.app AND c.user_id = t.user_id AND c.session_id = t.session_id
                AND c.turn_id = t.turn_id
          )
    ),
    undone AS (
        SELECT 'summarizer' AS subscription, u.app, u.user_id, u.session_id, u.turn_id, u.due_at AS since
        FROM uncovered AS u
        WHERE u.due_at IS NOT NULL
        UNION ALL
        SELECT s.subscription, t.app, t.user_id, t.session_id, t.turn_id, t.recorded_at
        FROM lamina.turns AS t
        CROSS JOIN stages AS s
        WHERE s.subscription <> 'summarizer'
          AND t.recorded_at >= stage_lag.since AND t.recorded_event IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM lamina.processed_events AS p
              WHERE p.app = t.app AND p.user_id = t.user_id AND p.consumer = s.subscription
                AND p.event_id = t.recorded_event
          )
    ),
    waiting AS (
        SELECT w.*, row_number() OVER (PARTITION BY w.subscription ORDER BY w.since, w.turn_id) AS place,
               count(*) OVER (PARTITION BY w.subscription) AS waiting
        FROM undone AS w
        WHERE NOT EXISTS (
            SELECT FROM lamina.dead_letters AS d
            WHERE d.app = w.app AND d.user_id = w.user_id AND d.turn_id = w.turn_id
              AND d.session_id = w.session_id AND d.subscription = w.subscription
        )
    )
    SELECT s.subscription, coalesce(w.waiting, 0), w.since, w.app, w.user_id, w.session_id, w.turn_id,
           (SELECT max(p.processed_at)
            FROM lamina.processed_events AS p
            WHERE p.consumer = s.subscription AND p.processed_at >= stage_lag.since)
    FROM stages AS s
    LEFT JOIN waiting AS w ON w.subscription = s.subscription AND w.place = 1
$$;

-- The dead letters of turns since then whose stage has not been done meanwhile, by subscription and class of error.
CREATE FUNCTION lamina.dead_letters_by_error(since timestamptz)
RETURNS TABLE (subscription text, error text, letters bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.subscription, d.error, count(*), min(d.parked_at)
    FROM lamina.dead_letters AS d
    LEFT JOIN lamina.turns AS t
        ON t.app = d.app AND t.user_id = d.user_id AND t.session_id = d.session_id AND t.turn_id = d.turn_id
    WHERE d.parked_at >= dead_letters_by_error.since
      AND NOT CASE d.subscription
          WHEN 'turn-ingest' THEN t.turn_id IS NOT NULL
          WHEN 'summarizer' THEN EXISTS (
              SELECT FROM lamina.summary_turns AS c
              WHERE c.app = d.app AND c.user_id = d.user_id AND c.session_id = d.session_id
                AND c.turn_id = d.turn_id AND NOT c.set_aside
          )
          ELSE EXISTS (
              SELECT FROM lamina.processed_events AS p
              WHERE p.app = d.app AND p.user_id = d.user_id AND p.consumer = d.subscription
                AND p.event_id = t.recorded_event
          )
      END
    GROUP BY d.subscription, d.error
$$;

-- Pub/Sub has let go of a letter after its retention; the index follows.
GRANT SELECT (parked_at), DELETE ON lamina.dead_letters TO lamina_janitor;
CREATE POLICY janitor_sees_letters ON lamina.dead_letters FOR SELECT TO lamina_janitor USING (true);
CREATE POLICY janitor_expires_letters ON lamina.dead_letters FOR DELETE TO lamina_janitor USING (true);
CREATE FUNCTION lamina.expire_dead_letters(before timestamptz) RETURNS bigint
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    WITH expired AS (
        DELETE FROM lamina.dead_letters AS d WHERE d.parked_at < expire_dead_letters.before RETURNING d.parked_at
    )
    SELECT count(*) FROM expired
$$;

REVOKE ALL ON FUNCTION lamina.stage_lag(timestamptz, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION lamina.dead_letters_by_error(timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION lamina.expire_dead_letters(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lamina.stage_lag(timestamptz, integer) TO lamina_operator;
GRANT EXECUTE ON FUNCTION lamina.dead_letters_by_error(timestamptz) TO lamina_operator;
GRANT EXECUTE ON FUNCTION lamina.expire_dead_letters(timestamptz) TO lamina_compactor;

-- Giving a function away takes membership in the new owner's role, and that role's right to create, for a moment.
GRANT CREATE ON SCHEMA lamina TO lamina_observer, lamina_janitor;
GRANT lamina_observer, lamina_janitor TO CURRENT_USER;
ALTER FUNCTION lamina.stage_lag(timestamptz, integer) OWNER TO lamina_observer;
ALTER FUNCTION lamina.dead_letters_by_error(timestamptz) OWNER TO lamina_observer;
ALTER FUNCTION lamina.expire_dead_letters(timestamptz) OWNER TO lamina_janitor;
REVOKE lamina_observer, lamina_janitor FROM CURRENT_USER;
REVOKE CREATE ON SCHEMA lamina FROM lamina_observer, lamina_janitor;
