#!lua
-- Remembers tombstones, and for how long. KEYS: the user's tombstones. ARGV: ttl in seconds, then name and moment of each.
local key = KEYS[1]
for index = 2, #ARGV, 2 do
  redis.call('HSET', key, ARGV[index], ARGV[index + 1])
end
redis.call('EXPIRE', key, ARGV[1])
return 1
