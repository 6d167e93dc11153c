-- What users had forgotten, for good: it keeps late and replayed events from bringing any of it back.

CREATE TABLE lamina.tombstones (
    app text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('user', 'session', 'project', 'turn', 'slot', 'words')),
    -- See lamina.forgetting.Tombstone. Slots and words are digests: not a word of what is forgotten is kept.
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- What is dated later is new and welcome.
    forgotten_at timestamptz NOT NULL,
    -- Counts the times that the user had something forgotten: what was read at an earlier one is out of date.
    generation integer NOT NULL CHECK (generation > 0),
    PRIMARY KEY (app, user_id, scope, owner, name)
);
SELECT lamina.isolate_users('lamina.tombstones');

-- The project of the turn, which a statement of another scope does not say. NULL for statements from before.
ALTER TABLE lamina.statements ADD COLUMN turn_project_id text COLLATE "C";

-- Every service that writes memory asks first; the context leaves out what a buffer still shows.
GRANT SELECT ON lamina.tombstones TO
    lamina_summarizer, lamina_entity_extractor, lamina_episodic_embedder, lamina_compactor, lamina_context,
    lamina_dead_letter_recorder;

-- An operator may do anything to one user's memory at a time: row-level security holds for it as well.
GRANT SELECT, INSERT, UPDATE, DELETE ON
    lamina.turns, lamina.sessions, lamina.processed_events, lamina.summaries, lamina.summary_turns,
    lamina.statements, lamina.entities, lamina.episodes, lamina.compactions, lamina.compaction_episodes,
    lamina.compaction_lines, lamina.dead_letters, lamina.tombstones
TO lamina_operator;
