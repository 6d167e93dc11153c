#!lua
-- Remembers when a turn was first published, as long as the turn is held. A hash's field shares its key's TTL.
-- KEYS: meta. ARGV: turn id.
-- Answers 1 where the turn is held, else 0.
local meta, id = KEYS[1], ARGV[1]
local state = string.match(redis.call('HGET', meta, 's:' .. id) or '', '^%l+')
if state ~= 'open' and state ~= 'closed' then
  return 0
end
local now = redis.call('TIME')
redis.call('HSETNX', meta, 'p:' .. id, string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
return 1
