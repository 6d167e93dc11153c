#!lua flags=no-writes
-- Tells whose a session is, from a turn's header or the cached summary. KEYS: order, meta, events, summary.
-- Answers {header, summary}, each of them nil where there is none.
local order, meta, summary = KEYS[1], KEYS[2], KEYS[4]
local first = redis.call('ZRANGE', order, 0, 0)[1]
local header = first and redis.call('HGET', meta, 'h:' .. first)
if not header then -- the order was evicted: any header will do
  for _, name in ipairs(redis.call('HKEYS', meta)) do
    if string.sub(name, 1, 2) == 'h:' then
      header = redis.call('HGET', meta, name)
      break
    end
  end
end
return {header or false, redis.call('GET', summary)}
