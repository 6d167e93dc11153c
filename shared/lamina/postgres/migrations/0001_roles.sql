-- The roles of the services, and the rule that keeps users apart.
--
-- Nobody logs in as these: a login (or a Cloud IAM user) is made a member of exactly one of them.
-- Roles belong to the whole cluster, so another database may have made them, perhaps at this very moment.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        'lamina_summarizer', 'lamina_entity_extractor', 'lamina_episodic_embedder',
        'lamina_compactor', 'lamina_context', 'lamina_dead_letter_recorder', 'lamina_operator',
        'lamina_planner', 'lamina_janitor', 'lamina_observer'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;

-- The planner, the janitor and the observer have no members: they only own the functions that look across users.
GRANT USAGE ON SCHEMA lamina TO
    lamina_summarizer, lamina_entity_extractor, lamina_episodic_embedder, lamina_compactor, lamina_context,
    lamina_dead_letter_recorder, lamina_operator, lamina_planner, lamina_janitor, lamina_observer;

CREATE EXTENSION IF NOT EXISTS vector;

-- Every table calls this. The settings are local to a transaction; once a connection has had them, they are ''
-- and not NULL in later transactions, so '' must mean nobody as well.
CREATE FUNCTION lamina.isolate_users(guarded regclass) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', guarded);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', guarded);
    EXECUTE format(
        $policy$
        CREATE POLICY own_rows ON %s
            USING (app = nullif(current_setting('lamina.app', true), '')
                   AND user_id = nullif(current_setting('lamina.user_id', true), ''))
        $policy$,
        guarded
    );
END
$$;
REVOKE ALL ON FUNCTION lamina.isolate_users(regclass) FROM PUBLIC;
