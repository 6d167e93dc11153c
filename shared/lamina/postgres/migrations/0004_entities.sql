-- Statements are the log of what was said; entities follow from them and can be derived again at any time.

CREATE TABLE lamina.statements (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL CHECK (ordinal >= 0),
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('global', 'project', 'session')),
    -- '' for global, the project's or the session's name: with scope and subject it is the slot.
    owner text COLLATE "C" NOT NULL,
    project_id text COLLATE "C",
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('preference', 'rule', 'veto', 'decision', 'fact')),
    subject text COLLATE "C" NOT NULL,
    text text NOT NULL,
    -- What a tool returned is data, and never becomes a statement.
    said_by text COLLATE "C" NOT NULL CONSTRAINT statements_no_tool CHECK (said_by IN ('user', 'agent')),
    said_at timestamptz NOT NULL,
    language text COLLATE "C" NOT NULL,
    extractor text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, user_id, session_id, turn_id, ordinal),
    CONSTRAINT statements_owner CHECK (
        owner = CASE scope WHEN 'project' THEN coalesce(project_id, '') WHEN 'session' THEN session_id ELSE '' END
        AND (scope = 'project') = (project_id IS NOT NULL)
    ),
    CONSTRAINT statements_year CHECK (said_at >= '0002-01-01Z' AND said_at < '9999-01-01Z')
);
CREATE INDEX statements_slot ON lamina.statements (app, user_id, scope, owner, subject);
SELECT lamina.isolate_users('lamina.statements');

CREATE TABLE lamina.entities (
    -- Derived from the slot and the first statement of the run.
    entity_id uuid PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    -- The first statement of the run.
    project_id text COLLATE "C",
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    text text NOT NULL,
    said_by text COLLATE "C" NOT NULL,
    said_at timestamptz NOT NULL,
    language text COLLATE "C" NOT NULL,
    -- valid_from <= t < valid_to (NULL: it holds now).
    valid_from timestamptz NOT NULL,
    valid_to timestamptz,
    superseded_by uuid,
    -- The turns that said so, oldest first, and when the last of them did.
    sources text[] NOT NULL,
    last_said_at timestamptz NOT NULL,
    -- The statement's own words at weight A, its subject at B.
    search tsvector NOT NULL,
    embedding vector(768),
    embedding_model text,
    extractor text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT entities_validity CHECK (valid_to >= valid_from AND (valid_to IS NULL) = (superseded_by IS NULL)),
    CONSTRAINT entities_vector_named CHECK ((embedding IS NULL) = (embedding_model IS NULL))
);
-- What holds now, by scope and owner; and the promise that a slot has one current entity.
CREATE UNIQUE INDEX entities_current ON lamina.entities (app, user_id, scope, owner, subject)
    WHERE valid_to IS NULL;
CREATE INDEX entities_slot ON lamina.entities (app, user_id, scope, owner, subject, valid_from);
SELECT lamina.isolate_users('lamina.entities');

-- A search reads the vector and the words of each of the user's rows, and the text only of those it returns. So the
-- 3 KB vector stays in the row, two rows fill a page, and the text is the first to move out when a row is longer.
ALTER TABLE lamina.entities SET (toast_tuple_target = 4080);
ALTER TABLE lamina.entities ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE lamina.entities ALTER COLUMN search SET STORAGE MAIN;
ALTER TABLE lamina.entities ALTER COLUMN text SET STORAGE EXTERNAL;

GRANT SELECT, INSERT ON lamina.statements TO lamina_entity_extractor;
GRANT SELECT, INSERT, UPDATE, DELETE ON lamina.entities TO lamina_entity_extractor;
GRANT SELECT ON lamina.statements, lamina.entities TO lamina_context;
