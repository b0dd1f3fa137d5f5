"""The atomic steps of the Redis store, in Lua for Redis 6.2 or newer.

Each script works on one learner's keys, in the order of `key_names.KEYS`: meta, log, tokens, snapshots, served, ids,
dropped, labels, histories. ARGV[1] is the birth that the caller expects. If it is not the present one, the script
changes nothing and returns nil. `served_scripts` has the scripts on served events.

Redis refuses the first write of a script if it is out of memory, read-only or cannot write to its disk. After a first
write it refuses none, so each script succeeds or fails as a whole. Positions are doubles in Lua, exact to 2^53.
"""

from __future__ import annotations

from hashlib import sha1

__all__ = [
    "APPEND",
    "APPEND_IN_RESERVE",
    "BOOKMARK",
    "CREATE",
    "DELETE",
    "DELETION",
    "LISTING",
    "MOVE_BOOKMARK",
    "NUMBER",
    "PRESENT",
    "PRUNE",
    "READ",
    "RESERVE",
    "RETAIN",
    "RETAINED",
    "TOKEN",
    "Script",
]


class Script:
    """A Lua script and the hash under which Redis caches it."""

    def __init__(self, *lua: str) -> None:
        self.text = "".join(lua)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# Prologues of scripts: return nil if the birth is not the present one; format a position.
PRESENT = """
local meta = redis.call('HMGET', KEYS[1], 'birth', 'head', 'trimmed')
if meta[1] ~= ARGV[1] then return false end
local head, trimmed = tonumber(meta[2]), tonumber(meta[3])
"""

NUMBER = """
local function number(position) return string.format('%.0f', position) end
"""

# A first write that is never refused and changes nothing: the small writes after it succeed even if the memory is full.
RESERVE = "redis.call('PERSIST', KEYS[1])\n"

# One by one: the number of entries that fill a reply is unknown. A step costs some microseconds.
_GATHER = """
local function gather(reply, after, limit, most, sent)
  local size = 0
  while limit > 0 do
    local found = redis.call('XRANGE', KEYS[2], number(after + 1) .. '-0', '+', 'COUNT', 1)[1]
    if not found then return end
    local token, data = found[2][2], found[2][4]
    size = size + #data
    if size > most and #reply > 3 then return end
    after = tonumber(string.match(found[1], '^%d+'))
    reply[#reply + 1] = after
    reply[#reply + 1] = token
    reply[#reply + 1] = sent[token] and '' or data
    limit = limit - 1
  end
end
"""

_FORGET = """
local function forget(prefix, snapshot)
  local id, parts = string.match(snapshot, '^(%S+) (%d+)')
  for part = 0, tonumber(parts) - 1 do redis.call('UNLINK', prefix .. id .. ':' .. part) end
end
"""

# keys: creating, learners; member
LISTING = """
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[2], ARGV[1])
"""

# token, data -> birth, head. A learner of this name that Redis evicted or lost in part may have left keys.
CREATE = Script("""
local meta = redis.call('HMGET', KEYS[1], 'birth', 'head')
if meta[1] then return {meta[1], tonumber(meta[2])} end
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('UNLINK', KEYS[2]) end
redis.call('XADD', KEYS[2], '1-0', 't', ARGV[1], 'd', ARGV[2])
redis.call('UNLINK', unpack(KEYS, 3))
redis.call('ZADD', KEYS[3], 1, ARGV[1])
redis.call('HSET', KEYS[1], 'birth', ARGV[1], 'head', 1, 'trimmed', 0)
return {ARGV[1], 1}
""")

# Whether the log has the record of this token at a position; true if this is unknown.
_SAME = """
local function same(position, token)
  if token == '' or position < trimmed then return true end
  if position > head then return false end
  if position == trimmed then
    local cut = redis.call('HGET', KEYS[1], 'cut')
    return not cut or cut == token
  end
  local stands = redis.call('ZSCORE', KEYS[3], token)
  return stands and tonumber(stands) == position
end
"""

# birth, after, expected token, bytes, then token and data of each record
#   -> head, trimmed, 1 if the expected token is at `after`, else 0; then position, token and data of each entry,
#      without the data of the records that the caller sent
_APPEND = (
    PRESENT,
    NUMBER,
    _GATHER,
    _SAME,
    """
local after = tonumber(ARGV[2])
if not same(after, ARGV[3]) then return {head, trimmed, 0} end
if after < trimmed or after > head then return {head, trimmed, 1} end
local sent = {}
for i = 5, #ARGV, 2 do
  sent[ARGV[i]] = true
  local stands = redis.call('ZSCORE', KEYS[3], ARGV[i])
  if not stands or tonumber(stands) <= after then
    head = head + 1
    redis.call('XADD', KEYS[2], number(head) .. '-0', 't', ARGV[i], 'd', ARGV[i + 1])
    redis.call('ZADD', KEYS[3], number(head), ARGV[i])
    redis.call('HSET', KEYS[1], 'head', number(head))
  end
end
local reply = {head, trimmed, 1}
gather(reply, after, math.huge, tonumber(ARGV[4]), sent)
return reply
""",
)
APPEND = Script(*_APPEND)
APPEND_IN_RESERVE = Script(RESERVE, *_APPEND)

# birth, after, expected token, bytes, limit -> as APPEND
READ = Script(
    PRESENT,
    NUMBER,
    _GATHER,
    _SAME,
    """
local after = tonumber(ARGV[2])
if not same(after, ARGV[3]) then return {head, trimmed, 0} end
local reply = {head, trimmed, 1}
if after >= trimmed then gather(reply, after, tonumber(ARGV[5]), tonumber(ARGV[4]), {}) end
return reply
""",
)

# birth, position -> head, token there; '' if it was forgotten
TOKEN = Script(
    PRESENT,
    """
local position = tonumber(ARGV[2])
if position == trimmed then return {head, redis.call('HGET', KEYS[1], 'cut') or ''} end
return {head, redis.call('ZRANGEBYSCORE', KEYS[3], position, position)[1] or ''}
""",
)

# keys: the deletions; birth, seconds since the epoch, number to keep
DELETION = f"""
{RESERVE}redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
"""

# birth, prefix of part keys -> 1
DELETE = Script(
    PRESENT,
    _FORGET,
    """
for _, snapshot in ipairs(redis.call('HVALS', KEYS[4])) do forget(ARGV[2], snapshot) end
redis.call('UNLINK', unpack(KEYS))
return 1
""",
)

_TRIM = """
local function trim(position)
  if position <= trimmed then return end
  redis.call('HSET', KEYS[1], 'cut', redis.call('ZRANGEBYSCORE', KEYS[3], position, position)[1])
  redis.call('XTRIM', KEYS[2], 'MINID', number(position + 1) .. '-0')
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', number(position))
  redis.call('HSET', KEYS[1], 'trimmed', number(position))
end
"""

# birth, position, trim (0 or 1), prefix of part keys -> 1
PRUNE = Script(
    RESERVE,
    PRESENT,
    NUMBER,
    _FORGET,
    _TRIM,
    """
local position = tonumber(ARGV[2])
if redis.call('HEXISTS', KEYS[4], number(position)) == 0 then return 1 end
for _, kept in ipairs(redis.call('HKEYS', KEYS[4])) do
  if tonumber(kept) < position then
    forget(ARGV[4], redis.call('HGET', KEYS[4], kept))
    redis.call('HDEL', KEYS[4], kept)
  end
end
if ARGV[3] == '1' then trim(position) end
return 1
""",
)

# birth, position, keep, trim (0 or 1), prefix of part keys, snapshot as in its hash, id, parts, expected token
#   -> outcome, head
RETAIN = Script(
    PRESENT,
    NUMBER,
    _FORGET,
    _SAME,
    _TRIM,
    """
local position, keep, prefix = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
if position > head or not same(position, ARGV[9]) then return {'lost', head} end
if position < trimmed then return {'behind', head} end
local first, last = prefix .. ARGV[7] .. ':', tonumber(ARGV[8]) - 1
for part = 0, last do
  if redis.call('EXISTS', first .. part) == 0 then return {'late', head} end
end
for part = 0, last do redis.call('PERSIST', first .. part) end
local replaced = redis.call('HGET', KEYS[4], number(position))
if replaced then forget(prefix, replaced) end
redis.call('HSET', KEYS[4], number(position), ARGV[6])

local positions = {}
for _, kept in ipairs(redis.call('HKEYS', KEYS[4])) do
  if tonumber(kept) > head then  -- snapshots of lost records
    forget(prefix, redis.call('HGET', KEYS[4], kept))
    redis.call('HDEL', KEYS[4], kept)
  else
    positions[#positions + 1] = tonumber(kept)
  end
end
table.sort(positions)
while #positions > keep do
  local oldest = number(table.remove(positions, 1))
  forget(prefix, redis.call('HGET', KEYS[4], oldest))
  redis.call('HDEL', KEYS[4], oldest)
end
if ARGV[4] == '1' and #positions > 0 then trim(positions[1]) end
local kept = redis.call('HGET', KEYS[4], number(position)) == ARGV[6]
return {kept and 'retained' or 'behind', head}
""",
)

# birth -> position and snapshot of each
RETAINED = Script(PRESENT, "return redis.call('HGETALL', KEYS[4])")

# birth, reader -> its place; '' if it noted none
BOOKMARK = Script(
    PRESENT,
    """
return redis.call('HGET', KEYS[1], 'mark:' .. ARGV[2]) or ''
""",
)

# birth, reader, place -> 1
MOVE_BOOKMARK = Script(
    PRESENT,
    RESERVE,
    """
redis.call('HSET', KEYS[1], 'mark:' .. ARGV[2], ARGV[3])
return 1
""",
)
