-- Compaction archives episodes behind a consolidation, and can be undone.

CREATE TABLE lamina.compactions (
    compaction_id uuid PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    project_id text COLLATE "C",
    before timestamptz NOT NULL,
    -- A list of SummaryLine, exact; compaction_lines holds the same for searching.
    lines json NOT NULL,
    model text NOT NULL,
    event_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    undone_at timestamptz
);
CREATE INDEX compactions_of_user ON lamina.compactions (app, user_id, created_at);
SELECT lamina.isolate_users('lamina.compactions');

-- Which episodes each compaction stands for; kept after the episodes have expired.
CREATE TABLE lamina.compaction_episodes (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    compaction_id uuid NOT NULL REFERENCES lamina.compactions,
    episode_id uuid NOT NULL,
    PRIMARY KEY (compaction_id, episode_id)
);
-- An episode that a compaction once covered is not taken again, even where that one was undone.
CREATE INDEX compaction_episodes_of_user ON lamina.compaction_episodes (app, user_id, episode_id);
SELECT lamina.isolate_users('lamina.compaction_episodes');

-- The lines of the compactions in force, searchable like episodes. Undoing a compaction removes its lines.
CREATE TABLE lamina.compaction_lines (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    compaction_id uuid NOT NULL REFERENCES lamina.compactions,
    ordinal integer NOT NULL,
    project_id text COLLATE "C",
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    text text NOT NULL,
    language text COLLATE "C" NOT NULL,
    occurred_at timestamptz NOT NULL,
    search tsvector NOT NULL,
    PRIMARY KEY (compaction_id, ordinal)
);
CREATE INDEX compaction_lines_of_project ON lamina.compaction_lines (app, user_id, project_id, occurred_at);
SELECT lamina.isolate_users('lamina.compaction_lines');

GRANT SELECT, INSERT ON lamina.compactions, lamina.compaction_episodes TO lamina_compactor;
GRANT UPDATE (undone_at) ON lamina.compactions TO lamina_compactor;
GRANT SELECT, INSERT, DELETE ON lamina.compaction_lines TO lamina_compactor;
GRANT SELECT ON lamina.compactions, lamina.compaction_episodes, lamina.compaction_lines TO lamina_context;
