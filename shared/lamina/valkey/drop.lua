#!lua flags=allow-oom
-- Lets go of turns whatever their state, without a mark that keeps them from coming back. Frees memory, so that it
-- runs even when the server has none left.
-- KEYS: order, meta, events, summary. ARGV: '1' to let go of the summary and of all marks as well, then turn ids.
-- Answers how many of the turns were held.
local order, meta, events, summary = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- A session that lost one of its keys counts as lost: see append.lua.
local live = tonumber(redis.call('HGET', meta, 'live') or -1)
if redis.call('ZCARD', order) ~= live or (live > 0 and redis.call('EXISTS', events) == 0) then
  redis.call('UNLINK', order, meta, events)
end

local dropped = 0
for index = 2, #ARGV do
  local id = ARGV[index]
  local state, count = string.match(redis.call('HGET', meta, 's:' .. id) or '', '^(%l+) (%d+)$')
  if state == 'open' or state == 'closed' then
    for position = 0, tonumber(count) - 1 do
      redis.call('HDEL', events, id .. string.format(':%06d', position))
    end
    redis.call('ZREM', order, id)
    redis.call('HINCRBY', meta, 'live', -1)
    dropped = dropped + 1
  end
  redis.call('HDEL', meta, 'h:' .. id, 'p:' .. id, 's:' .. id)
end

if ARGV[1] == '1' then
  redis.call('UNLINK', summary)
  local fields = redis.call('HGETALL', meta)
  for index = 1, #fields, 2 do
    if string.sub(fields[index], 1, 2) == 's:' and string.sub(fields[index + 1], 1, 7) == 'trimmed' then
      redis.call('HDEL', meta, fields[index])
    end
  end
end
if redis.call('HLEN', meta) <= 1 then -- nothing but the count of no turns
  redis.call('UNLINK', order, meta, events)
end
return dropped
