#!lua flags=no-writes
-- Reads a session at one moment; the cost grows with the turns read, not with the session.
-- KEYS: order, meta, events, summary. ARGV: how many of the latest turns, or 'all'.
-- Answers {known, summary, turns}; a turn is {id, state, header, events}.
local order, meta, events, summary = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local last = ARGV[1]

local function texts(id, count)
  local found = {}
  for from = 0, count - 1, 1000 do -- unpack takes a few thousand values at most
    local fields = {}
    for position = from, math.min(from + 1000, count) - 1 do
      fields[#fields + 1] = id .. string.format(':%06d', position)
    end
    for _, text in ipairs(redis.call('HMGET', events, unpack(fields))) do
      found[#found + 1] = text
    end
  end
  return found
end

local cached = redis.call('GET', summary)
-- The server evicts single keys: a session that lost one of them counts as lost.
local live = tonumber(redis.call('HGET', meta, 'live') or -1)
if redis.call('ZCARD', order) ~= live or (live > 0 and redis.call('EXISTS', events) == 0) then
  return {0, cached, {}}
end

local ids = {}
if last == 'all' then
  ids = redis.call('ZRANGE', order, 0, -1)
elseif last ~= '0' then
  ids = redis.call('ZRANGE', order, '-' .. last, -1)
end
local turns = {}
for _, id in ipairs(ids) do
  local about = redis.call('HMGET', meta, 's:' .. id, 'h:' .. id)
  local state, count = string.match(about[1], '^(%l+) (%d+)$')
  turns[#turns + 1] = {id, state, about[2], texts(id, tonumber(count))}
end
return {1, cached, turns}
