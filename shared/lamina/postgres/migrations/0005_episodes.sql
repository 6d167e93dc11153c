-- Episodes: searchable pieces of past turns.
--
-- There is no index on `search` and none on `embedding`. Under row-level security PostgreSQL applies the policy before
-- any operator that is not leakproof, and neither @@ nor <=> is: such an index would be paid for and never used.
-- A search reads the user's own rows (episodes_of_project) and compares each of them exactly, so its recall is 1.

CREATE TABLE lamina.episodes (
    -- Derived from app, user, session, turn and ordinal.
    episode_id uuid NOT NULL UNIQUE,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL CHECK (ordinal >= 0),
    project_id text COLLATE "C",
    speaker text COLLATE "C" NOT NULL CHECK (speaker IN ('user', 'agent', 'tool')),
    text text NOT NULL,
    language text COLLATE "C" NOT NULL,
    handle text NOT NULL,
    -- How the turn was cut, by name and version.
    chunker text NOT NULL,
    occurred_at timestamptz NOT NULL,
    -- Its own words at weight A; those of the chunk before and the chunk after it in the session at weight D.
    search tsvector NOT NULL,
    embedding vector(768),
    embedding_model text,
    -- The compaction whose consolidation stands for it; a search leaves archived episodes out.
    archived_by uuid,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, user_id, session_id, turn_id, ordinal),
    CONSTRAINT episodes_vector_named CHECK ((embedding IS NULL) = (embedding_model IS NULL)),
    CONSTRAINT episodes_year CHECK (occurred_at >= '0002-01-01Z' AND occurred_at < '9999-01-01Z')
);
-- A session's chunks in order: neighbours, and reading on around a hit.
CREATE INDEX episodes_in_order ON lamina.episodes (app, user_id, session_id, occurred_at, turn_id, ordinal);
-- What a search reads, and what compaction takes the oldest of.
CREATE INDEX episodes_of_project ON lamina.episodes (app, user_id, project_id, occurred_at)
    WHERE archived_by IS NULL;
-- The planner looks for old episodes over all users.
CREATE INDEX episodes_by_age ON lamina.episodes (occurred_at) WHERE archived_by IS NULL;
CREATE INDEX episodes_archived ON lamina.episodes (archived_by) WHERE archived_by IS NOT NULL;
SELECT lamina.isolate_users('lamina.episodes');

-- As for entities: the vector stays in the row, the text is the first to move out.
ALTER TABLE lamina.episodes SET (toast_tuple_target = 4080);
ALTER TABLE lamina.episodes ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE lamina.episodes ALTER COLUMN search SET STORAGE MAIN;
ALTER TABLE lamina.episodes ALTER COLUMN text SET STORAGE EXTERNAL;

GRANT SELECT, INSERT ON lamina.episodes TO lamina_episodic_embedder;
GRANT UPDATE (search, embedding, embedding_model) ON lamina.episodes TO lamina_episodic_embedder;
GRANT SELECT ON lamina.episodes TO lamina_context, lamina_compactor;
GRANT UPDATE (archived_by) ON lamina.episodes TO lamina_compactor;
