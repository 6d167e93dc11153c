-- One statement for all that a context or a search needs. Parameters: see reader.py.
--
-- Every row of the user that is in scope is scored exactly, by words and by meaning; no index over other
-- users' rows takes part, so nothing is missed. The best of either list are returned with both scores and
-- their scales; lamina.recall.fusion makes one ranking of them.
WITH
-- The simple configuration drops no stop words, so words that any language drops are left out for it.
telling AS (
    SELECT string_agg('"' || term || '"', ' OR ') AS any_term
    FROM unnest(%(terms)s::text[]) AS term
    WHERE length(to_tsvector('english', term)) > 0
      AND length(to_tsvector('spanish', term)) > 0
      AND length(to_tsvector('portuguese', term)) > 0
),
-- A row's words were analysed in its own language, and so are the question's that they are held against.
asked AS MATERIALIZED (
    SELECT
        websearch_to_tsquery('english', %(any_term)s) AS english,
        websearch_to_tsquery('spanish', %(any_term)s) AS spanish,
        websearch_to_tsquery('portuguese', %(any_term)s) AS portuguese,
        websearch_to_tsquery('simple', coalesce(telling.any_term, '')) AS simple,
        %(vector)s::vector AS vector
    FROM telling
),
-- The session and those before it, for a summary to inherit.
lineage AS (
    SELECT session_id, previous_session_id, depth
    FROM lamina.lineage(%(app)s, %(user_id)s, %(session_id)s, %(previous_session_id)s)
),
summary AS (
    SELECT s.session_id, s.version, s.lines, s.model
    FROM lineage AS l
    JOIN lamina.summaries AS s
        ON s.app = %(app)s AND s.user_id = %(user_id)s AND s.session_id = l.session_id
    WHERE %(with_session)s::boolean
    ORDER BY l.depth, s.version DESC
    LIMIT 1
),
tail AS (
    SELECT t.header, t.events, t.occurred_at, t.turn_id
    FROM (
        SELECT latest.*
        FROM lamina.turns AS latest
        WHERE latest.app = %(app)s AND latest.user_id = %(user_id)s AND latest.session_id = %(session_id)s
        ORDER BY latest.occurred_at DESC, latest.turn_id DESC
        LIMIT %(tail)s::integer + cardinality(%(seen)s::text[])
    ) AS t
    WHERE %(tail)s::integer > 0
      AND t.turn_id <> ALL(%(seen)s::text[])
      AND NOT EXISTS (
          SELECT FROM lamina.summary_turns AS covered
          WHERE covered.app = t.app AND covered.user_id = t.user_id
            AND covered.session_id = t.session_id AND covered.turn_id = t.turn_id
      )
    ORDER BY t.occurred_at DESC, t.turn_id DESC
    LIMIT %(tail)s::integer
),
holding AS (
    SELECT
        e.entity_id, e.scope, e.project_id, e.session_id, e.kind, e.subject, e.text, e.said_by, e.turn_id,
        e.said_at, e.valid_to,
        ts_rank(
            '{0.1, 0.2, 0.6, 1.0}',
            e.search,
            CASE e.language
                WHEN 'en' THEN asked.english
                WHEN 'es' THEN asked.spanish
                WHEN 'pt' THEN asked.portuguese
                ELSE asked.simple
            END
        ) AS words,
        CASE WHEN e.embedding_model = %(model)s THEN 1 - (e.embedding <=> asked.vector) END AS meaning
    FROM lamina.entities AS e
    CROSS JOIN asked
    WHERE e.app = %(app)s AND e.user_id = %(user_id)s
      AND (
          e.scope = 'global'
          OR (e.scope = 'project' AND e.owner = %(project_id)s)
          OR (e.scope = 'session' AND e.owner = %(session_id)s)
      )
      AND (%(scope)s::text IS NULL OR e.scope = %(scope)s)
      AND (
          (%(as_of)s::timestamptz IS NULL AND e.valid_to IS NULL)
          OR (
              e.valid_from <= %(as_of)s::timestamptz
              AND (e.valid_to IS NULL OR e.valid_to > %(as_of)s::timestamptz)
          )
      )
      AND (%(entities)s::integer > 0 OR %(with_session)s::boolean)
),
entities AS (
    SELECT
        h.*,
        max(h.words) OVER () AS words_high,
        min(h.meaning) OVER () AS meaning_low,
        max(h.meaning) OVER () AS meaning_high,
        row_number() OVER (ORDER BY h.words DESC, h.said_at DESC) AS by_words,
        row_number() OVER (ORDER BY h.meaning DESC NULLS LAST, h.said_at DESC) AS by_meaning
    FROM holding AS h
    WHERE NOT (%(with_session)s::boolean AND h.kind IN ('rule', 'veto'))
),
past AS MATERIALIZED (
    SELECT
        e.episode_id AS id, e.session_id, e.turn_id, e.ordinal, e.speaker, e.occurred_at,
        ts_rank(
            '{0.5, 0.2, 0.4, 1.0}',
            e.search,
            CASE e.language
                WHEN 'en' THEN asked.english
                WHEN 'es' THEN asked.spanish
                WHEN 'pt' THEN asked.portuguese
                ELSE asked.simple
            END
        ) AS words,
        CASE WHEN e.embedding_model = %(model)s THEN 1 - (e.embedding <=> asked.vector) END AS meaning
    FROM lamina.episodes AS e
    CROSS JOIN asked
    WHERE %(episodes)s::integer > 0
      AND e.app = %(app)s AND e.user_id = %(user_id)s AND e.archived_by IS NULL
      AND (
          e.project_id IS NULL
          OR e.project_id = %(project_id)s
          OR (%(project_id)s::text IS NULL AND e.session_id = %(session_id)s)
      )
      AND (
          %(scope)s::text IS NULL
          OR (%(scope)s = 'global' AND e.project_id IS NULL)
          OR (%(scope)s = 'project' AND e.project_id = %(project_id)s)
          OR (%(scope)s = 'session' AND e.session_id = %(session_id)s)
      )
      AND (%(as_of)s::timestamptz IS NULL OR e.occurred_at <= %(as_of)s::timestamptz)
      AND NOT (e.session_id = coalesce(%(session_id)s, '') AND e.turn_id = ANY (%(seen)s::text[]))
),
-- What was said before and after a chunk tells what the chunk is about.
episodes AS (
    SELECT
        p.id, p.session_id, p.turn_id, p.ordinal, p.speaker, p.occurred_at, p.words,
        (
            p.meaning
            + 0.25 * coalesce(lag(p.meaning) OVER in_order, p.meaning)
            + 0.25 * coalesce(lead(p.meaning) OVER in_order, p.meaning)
        ) / 1.5 AS meaning,
        false AS consolidated
    FROM past AS p
    WINDOW in_order AS (PARTITION BY p.session_id ORDER BY p.occurred_at, p.turn_id, p.ordinal)
    UNION ALL
    SELECT
        c.compaction_id, c.session_id, c.turn_id, c.ordinal, 'agent', c.occurred_at,
        ts_rank(
            '{0.5, 0.2, 0.4, 1.0}',
            c.search,
            CASE c.language
                WHEN 'en' THEN asked.english
                WHEN 'es' THEN asked.spanish
                WHEN 'pt' THEN asked.portuguese
                ELSE asked.simple
            END
        ), NULL, true
    FROM lamina.compaction_lines AS c
    CROSS JOIN asked
    WHERE %(episodes)s::integer > 0
      AND c.app = %(app)s AND c.user_id = %(user_id)s
      AND (
          c.project_id IS NULL
          OR c.project_id = %(project_id)s
          OR (%(project_id)s::text IS NULL AND c.session_id = %(session_id)s)
      )
      AND (
          %(scope)s::text IS NULL
          OR (%(scope)s = 'global' AND c.project_id IS NULL)
          OR (%(scope)s = 'project' AND c.project_id = %(project_id)s)
          OR (%(scope)s = 'session' AND c.session_id = %(session_id)s)
      )
      AND (%(as_of)s::timestamptz IS NULL OR c.occurred_at <= %(as_of)s::timestamptz)
),
measured AS (
    SELECT
        e.*,
        max(e.words) OVER () AS words_high,
        min(e.meaning) OVER () AS meaning_low,
        max(e.meaning) OVER () AS meaning_high,
        row_number() OVER (ORDER BY e.words DESC, e.occurred_at DESC) AS by_words,
        row_number() OVER (ORDER BY e.meaning DESC NULLS LAST, e.occurred_at DESC) AS by_meaning
    FROM episodes AS e
),
found AS (
    SELECT
        m.session_id, m.turn_id, m.ordinal, m.speaker, m.occurred_at, m.words, m.meaning, m.words_high,
        m.meaning_low, m.meaning_high,
        coalesce(c.project_id, o.project_id) AS project_id,
        coalesce(c.text, o.text) AS text,
        coalesce(o.handle, '') AS handle
    FROM measured AS m
    LEFT JOIN lamina.episodes AS o ON o.episode_id = m.id AND NOT m.consolidated
    LEFT JOIN lamina.compaction_lines AS c
        ON c.compaction_id = m.id AND c.ordinal = m.ordinal AND m.consolidated
    WHERE (m.words > 0 AND m.by_words <= %(episodes)s::integer)
       OR (m.meaning IS NOT NULL AND m.by_meaning <= %(episodes)s::integer)
)
SELECT
    (SELECT l.previous_session_id FROM lineage AS l WHERE l.depth = 0) AS previous_session_id,
    (SELECT row_to_json(s)::text FROM summary AS s) AS summary,
    (
        SELECT json_agg(r ORDER BY r.said_at, r.entity_id)
        FROM holding AS r
        WHERE %(with_session)s::boolean AND r.kind IN ('rule', 'veto')
    ) AS rules,
    (
        SELECT json_agg(e)
        FROM entities AS e
        WHERE (e.by_words <= %(entities)s::integer AND (e.words > 0 OR %(unmatched)s::boolean))
           OR (e.by_meaning <= %(entities)s::integer AND e.meaning IS NOT NULL)
    ) AS entities,
    (SELECT json_agg(f) FROM found AS f) AS episodes,
    (
        SELECT json_agg(
            json_build_object(
                'scope', x.scope, 'owner', x.owner, 'name', x.name, 'forgotten_at', x.forgotten_at,
                'generation', x.generation
            )
        )
        FROM lamina.tombstones AS x
        WHERE x.app = %(app)s AND x.user_id = %(user_id)s AND %(with_session)s::boolean
          AND (
              x.scope IN ('user', 'session', 'project', 'slot', 'words')
              OR (x.scope = 'turn' AND x.owner = %(session_id)s AND x.name = ANY (%(seen)s::text[]))
          )
    ) AS forgotten,
    (
        SELECT json_agg(
            json_build_object('header', t.header, 'events', t.events) ORDER BY t.occurred_at, t.turn_id
        )::text
        FROM tail AS t
    ) AS tail
