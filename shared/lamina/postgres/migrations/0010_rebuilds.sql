-- Memory made again from the log, beside the memory in use: nobody reads it before it takes that one's place, in one
-- transaction. Only an operator works here, for one user at a time.

CREATE TABLE lamina.rebuilds (
    rebuild_id uuid PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    stage text COLLATE "C" NOT NULL CHECK (stage IN ('entities', 'episodes', 'summaries')),
    -- NULL: all of the user's sessions.
    session_id text COLLATE "C",
    -- What makes the memory, by name and version: the model or the chunker, and the embedder. '' where it is not asked:
    -- a summary needs no embedder, and entities may be given nothing but other vectors.
    maker text NOT NULL,
    embedder text NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'running'
        CHECK (state IN ('running', 'ready', 'swapped', 'abandoned')),
    counts jsonb NOT NULL DEFAULT '{}',
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT rebuilds_end CHECK ((ended_at IS NULL) = (state IN ('running', 'ready')))
);
CREATE UNIQUE INDEX rebuild_open_once ON lamina.rebuilds (app, user_id, stage) WHERE ended_at IS NULL;
SELECT lamina.isolate_users('lamina.rebuilds');

-- What has been made, a row a turn; for summaries a row a session, whose turn is ''. It goes when the rebuild ends.
-- Whoever forgets something of a user deletes the user's open rebuilds, and this with them.
CREATE TABLE lamina.rebuild_items (
    rebuild_id uuid NOT NULL REFERENCES lamina.rebuilds ON DELETE CASCADE,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    -- Why the model would not do it: what is in memory stays then.
    refused text,
    -- json and not jsonb: a line's text may hold an escaped NUL.
    result json NOT NULL,
    PRIMARY KEY (rebuild_id, session_id, turn_id)
);
SELECT lamina.isolate_users('lamina.rebuild_items');

-- The vectors that the new memory needs, by an id derived from the text: equal texts are embedded once.
CREATE TABLE lamina.rebuild_vectors (
    rebuild_id uuid NOT NULL REFERENCES lamina.rebuilds ON DELETE CASCADE,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    text_id uuid NOT NULL,
    embedding vector(768) NOT NULL,
    PRIMARY KEY (rebuild_id, text_id)
);
SELECT lamina.isolate_users('lamina.rebuild_vectors');

GRANT SELECT, INSERT, UPDATE, DELETE
    ON lamina.rebuilds, lamina.rebuild_items, lamina.rebuild_vectors TO lamina_operator;
