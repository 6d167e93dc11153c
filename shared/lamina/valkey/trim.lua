#!lua flags=allow-oom
-- Moves the cached summary forward and lets go of the turns it covers, in one step. Frees memory, so that it
-- runs even when the server has none left.
-- KEYS: order, meta, events, summary. ARGV: ttl in ms, '<version> <summary>', then the ids of the covered turns.
-- Answers 0, with nothing changed, where the cache is at a later version; else 1.
local order, meta, events, summary = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, proposed = ARGV[1], ARGV[2]

local function version(text)
  return text and tonumber(string.match(text, '^%d+')) or -1
end

if version(redis.call('GET', summary)) > version(proposed) then
  return 0
end
redis.call('SET', summary, proposed)

for index = 3, #ARGV do
  local id = ARGV[index]
  local count = string.match(redis.call('HGET', meta, 's:' .. id) or '', '^closed (%d+)$')
  if count then -- a turn that still grows stays; an unknown one is nothing to let go of
    for position = 0, tonumber(count) - 1 do
      redis.call('HDEL', events, id .. string.format(':%06d', position))
    end
    redis.call('ZREM', order, id)
    redis.call('HDEL', meta, 'h:' .. id, 'p:' .. id)
    redis.call('HINCRBY', meta, 'live', -1)
    redis.call('HSET', meta, 's:' .. id, 'trimmed ' .. count) -- the marker that keeps it from coming back
  end
end

for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
return 1
