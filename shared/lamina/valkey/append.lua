#!lua
-- Appends events to a turn, by position: what is held already stays as it is.
-- KEYS: order, meta, events, summary.
-- ARGV: ttl in ms, score, turn id, header, position of the first event, '1' to close the turn, then the events.
-- Answers {what, state, header, events}: what is 'appended', 'duplicate', 'trimmed', 'gap' or 'ended'; header and
-- events come along where the turn is closed and the caller cannot know all of it.
local order, meta, events = KEYS[1], KEYS[2], KEYS[3]
local ttl, score, id, header = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local first, close = tonumber(ARGV[5]), ARGV[6] == '1'
local stop = first + #ARGV - 6

local function field(position)
  return id .. string.format(':%06d', position)
end

local function texts(count)
  local found = {}
  for from = 0, count - 1, 1000 do -- unpack takes a few thousand values at most
    local fields = {}
    for position = from, math.min(from + 1000, count) - 1 do
      fields[#fields + 1] = field(position)
    end
    for _, text in ipairs(redis.call('HMGET', events, unpack(fields))) do
      found[#found + 1] = text
    end
  end
  return found
end

-- The server evicts single keys: a session that lost one of them counts as lost, and begins again. The cached
-- summary goes as well: where there is one, readers may rely on the turns that it does not cover.
local live = tonumber(redis.call('HGET', meta, 'live') or -1)
if redis.call('ZCARD', order) ~= live or (live > 0 and redis.call('EXISTS', events) == 0) then
  redis.call('UNLINK', unpack(KEYS))
end

local state, count = 'new', 0
local held = redis.call('HGET', meta, 's:' .. id)
if held then
  state, count = string.match(held, '^(%l+) (%d+)$')
  count = tonumber(count)
end

local what = 'duplicate'
if state == 'trimmed' then
  what = 'trimmed'
elseif first > count then
  return {'gap', tostring(count)}
elseif state == 'closed' and stop > count then
  return {'ended', tostring(count)}
elseif state == 'new' or stop > count or (close and state == 'open') then
  what = 'appended'
  if state == 'new' then
    redis.call('ZADD', order, score, id)
    redis.call('HSET', meta, 'h:' .. id, header)
    redis.call('HINCRBY', meta, 'live', 1)
  end
  for position = count, stop - 1 do
    redis.call('HSET', events, field(position), ARGV[7 + position - first])
  end
  local as_sent = state == 'new' and close
  state, count = close and 'closed' or 'open', math.max(count, stop)
  redis.call('HSET', meta, 's:' .. id, state .. ' ' .. count)
  if as_sent then
    state = 'as sent'
  end
end

for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
if state == 'closed' then
  return {what, state, redis.call('HGET', meta, 'h:' .. id), texts(count)}
end
return {what, state}
