-- The two jobs that look across users. Each runs as a role of its own that can do nothing else: the planner reads keys
-- and dates but no content; the janitor deletes what may expire, and cannot read what it deletes.

GRANT SELECT (app, user_id, project_id, occurred_at, archived_by, episode_id) ON lamina.episodes TO lamina_planner;
CREATE POLICY planner_reads_keys ON lamina.episodes FOR SELECT TO lamina_planner USING (true);
GRANT SELECT (app, user_id, episode_id) ON lamina.compaction_episodes TO lamina_planner;
CREATE POLICY planner_reads_keys ON lamina.compaction_episodes FOR SELECT TO lamina_planner USING (true);

CREATE FUNCTION lamina.plan_compactions(before timestamptz)
RETURNS TABLE (app text, user_id text, project_id text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT e.app, e.user_id, e.project_id
    FROM lamina.episodes AS e
    WHERE e.archived_by IS NULL AND e.occurred_at < plan_compactions.before
      AND NOT EXISTS (  -- an undo lasts
          SELECT FROM lamina.compaction_episodes AS undone
          WHERE undone.app = e.app AND undone.user_id = e.user_id AND undone.episode_id = e.episode_id
      )
$$;

GRANT SELECT (archived_by), DELETE ON lamina.episodes TO lamina_janitor;
CREATE POLICY janitor_sees_archived ON lamina.episodes FOR SELECT TO lamina_janitor
    USING (archived_by IS NOT NULL);
CREATE POLICY janitor_expires_archived ON lamina.episodes FOR DELETE TO lamina_janitor
    USING (archived_by IS NOT NULL);

GRANT SELECT (compaction_id, created_at) ON lamina.compactions TO lamina_janitor;
CREATE POLICY janitor_reads_ages ON lamina.compactions FOR SELECT TO lamina_janitor USING (true);

GRANT SELECT (app, user_id, scope, owner, subject, said_at), DELETE ON lamina.statements TO lamina_janitor;
CREATE POLICY janitor_sees_sessions ON lamina.statements FOR SELECT TO lamina_janitor
    USING (scope = 'session');
CREATE POLICY janitor_expires_sessions ON lamina.statements FOR DELETE TO lamina_janitor
    USING (scope = 'session');

GRANT SELECT (app, user_id, scope, owner, subject, last_said_at), DELETE ON lamina.entities TO lamina_janitor;
CREATE POLICY janitor_sees_sessions ON lamina.entities FOR SELECT TO lamina_janitor
    USING (scope = 'session');
CREATE POLICY janitor_expires_sessions ON lamina.entities FOR DELETE TO lamina_janitor
    USING (scope = 'session');

GRANT SELECT (processed_at), DELETE ON lamina.processed_events TO lamina_janitor;
CREATE POLICY janitor_sees_events ON lamina.processed_events FOR SELECT TO lamina_janitor USING (true);
CREATE POLICY janitor_expires_events ON lamina.processed_events FOR DELETE TO lamina_janitor USING (true);

-- A moment that is NULL keeps everything. A session's slot goes as a whole, statements and entities alike, so that what
-- is left still derives to itself.
CREATE FUNCTION lamina.expire_memory(
    archived_before timestamptz, session_before timestamptz, processed_before timestamptz,
    OUT episodes bigint, OUT statements bigint, OUT entities bigint, OUT processed_events bigint
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM lamina.episodes AS e
    USING lamina.compactions AS c
    WHERE e.archived_by = c.compaction_id AND c.created_at < archived_before;
    GET DIAGNOSTICS episodes = ROW_COUNT;

    DELETE FROM lamina.statements AS s
    WHERE s.scope = 'session' AND s.said_at < session_before
      AND NOT EXISTS (
          SELECT FROM lamina.statements AS later
          WHERE (later.app, later.user_id, later.scope, later.owner, later.subject)
              = (s.app, s.user_id, s.scope, s.owner, s.subject)
            AND later.said_at >= session_before
      );
    GET DIAGNOSTICS statements = ROW_COUNT;

    DELETE FROM lamina.entities AS e
    WHERE e.scope = 'session' AND e.last_said_at < session_before
      AND NOT EXISTS (
          SELECT FROM lamina.entities AS later
          WHERE (later.app, later.user_id, later.scope, later.owner, later.subject)
              = (e.app, e.user_id, e.scope, e.owner, e.subject)
            AND later.last_said_at >= session_before
      );
    GET DIAGNOSTICS entities = ROW_COUNT;

    DELETE FROM lamina.processed_events AS p WHERE p.processed_at < processed_before;
    GET DIAGNOSTICS processed_events = ROW_COUNT;
END
$$;

REVOKE ALL ON FUNCTION lamina.plan_compactions(timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION lamina.expire_memory(timestamptz, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lamina.plan_compactions(timestamptz) TO lamina_compactor;
GRANT EXECUTE ON FUNCTION lamina.expire_memory(timestamptz, timestamptz, timestamptz) TO lamina_compactor;

-- Giving a function away takes membership in the new owner's role, and that role's right to create, for a moment.
GRANT CREATE ON SCHEMA lamina TO lamina_planner, lamina_janitor;
GRANT lamina_planner, lamina_janitor TO CURRENT_USER;
ALTER FUNCTION lamina.plan_compactions(timestamptz) OWNER TO lamina_planner;
ALTER FUNCTION lamina.expire_memory(timestamptz, timestamptz, timestamptz) OWNER TO lamina_janitor;
REVOKE lamina_planner, lamina_janitor FROM CURRENT_USER;
REVOKE CREATE ON SCHEMA lamina FROM lamina_planner, lamina_janitor;
