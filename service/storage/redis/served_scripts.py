"""What the Redis store remembers of served events: its scripts, and what goes into and comes out of them.

An event is an entry of a stream, in served order, `<number>-0`: in a stream, entries stand packed by the dozen. A hash
leads from the event's id to its number. What is dropped goes from the stream but not from the hash: a number there
without an entry here is a tombstone. A list of `<number>:<id>`, in the order of dropping, says which tombstone goes
next; where the hash has another number for the id, it was served again since, and stays. A set holds the numbers of
those entries whose label has come.

An event takes some 170 bytes beside its id and data. One that is taken out of the middle, because its id was served
again, leaves its bytes unused until its neighbours, up to 4 KB of them, have gone too.

A call's events come as one argument for their data and one, MessagePack, for all else: Redis reads two arguments faster
than two hundred thousand. The scripts hand up to `CHUNK` values at a time to one command, which `unpack` can carry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from service.storage.redis.scripts import NUMBER, PRESENT, Script
from service.storage.store_protocol import DROPS, ExpiredEvents, ServedEvent, ServedLimits, latest

__all__ = [
    "EXPIRED",
    "LABELLED",
    "PENDING",
    "RECALL",
    "REOPEN",
    "SERVE",
    "SETTLE",
    "expired_in",
    "pack_events",
    "pack_ids",
    "pack_time",
    "recalled_in",
]

_TIME = struct.Struct("<d")  # before the data in the stream

_COUNTS = """
local counts = redis.call('HMGET', KEYS[1], 'served', 'bytes', 'expired', 'evicted')
local served, bytes = tonumber(counts[1] or 0), tonumber(counts[2] or 0)
local expired, evicted = tonumber(counts[3] or 0), tonumber(counts[4] or 0)
local function pending() return {redis.call('XLEN', KEYS[5]), bytes, expired, evicted} end
"""

_CHANGES = """
local CHUNK = 1000

local function write()
  redis.call('HSET', KEYS[1], 'served', number(served), 'bytes', number(bytes),
    'expired', number(expired), 'evicted', number(evicted))
end

local function size(entry) return #entry[2][2] + #entry[2][4] - 8 end

-- Whether there is an entry of this number; there is none any more.
local function take(at)
  local entry = redis.call('XRANGE', KEYS[5], at .. '-0', at .. '-0')[1]
  if not entry then return false end
  redis.call('XDEL', KEYS[5], entry[1])
  redis.call('SREM', KEYS[8], at)
  bytes = bytes - size(entry)
  return true
end
"""

# birth -> events, bytes, expired, evicted
PENDING = Script(PRESENT, _COUNTS, "return pending()")

# birth, token, record, after, (bounds, drops at most, ids, times, sizes), data
#   -> position, token of the record before it, then as PENDING; only how far the log is trimmed if that is past `after`
SERVE = Script(
    PRESENT,
    NUMBER,
    _COUNTS,
    _CHANGES,
    """
local function receipt(position)
  local before = redis.call('ZRANGEBYSCORE', KEYS[3], number(position - 1), number(position - 1))[1]
  if not before and position - 1 == trimmed then before = redis.call('HGET', KEYS[1], 'cut') end
  return {position, before or '', unpack(pending())}
end
local logged = redis.call('ZSCORE', KEYS[3], ARGV[2])
if logged then return receipt(tonumber(logged)) end
if tonumber(ARGV[4]) < trimmed then return {trimmed} end
head = head + 1
redis.call('XADD', KEYS[2], number(head) .. '-0', 't', ARGV[2], 'd', ARGV[3])
redis.call('ZADD', KEYS[3], number(head), ARGV[2])
redis.call('HSET', KEYS[1], 'head', number(head))
local bounds, most, ids, times, sizes = unpack(cmsgpack.unpack(ARGV[5]))
local room, room_bytes, before = unpack(bounds)

local from = 1
for first = 1, #ids, CHUNK do
  local last = math.min(first + CHUNK - 1, #ids)
  local numbers = redis.call('HMGET', KEYS[6], unpack(ids, first, last))
  local places = {}
  for i = first, last do
    local id, till = ids[i], from + sizes[i]
    local known = numbers[i - first + 1]
    if known then take(known) end
    served = served + 1
    redis.call('XADD', KEYS[5], number(served) .. '-0',
      'i', id, 'd', struct.pack('<d', times[i]) .. string.sub(ARGV[6], from, till - 1))
    bytes, from = bytes + #id + sizes[i], till
    places[#places + 1] = id
    places[#places + 1] = number(served)
  end
  redis.call('HSET', KEYS[6], unpack(places))
end

-- Twice as many looked at each time: mostly about as many are dropped as came, or none.
local function drop()
  local standing, start, dropped, step = redis.call('XLEN', KEYS[5]), '-', 0, 1
  local over = false
  while not over and dropped < most do
    local oldest = redis.call('XRANGE', KEYS[5], start, '+', 'COUNT', math.min(step, most - dropped))
    local gone, ats = {}, {}
    over = #oldest == 0
    for _, entry in ipairs(oldest) do
      if struct.unpack('<d', entry[2][4]) < before then
        expired = expired + 1
      elseif standing > room or bytes > room_bytes then
        evicted = evicted + 1
      else
        over = true
        break
      end
      local at = string.match(entry[1], '^%d+')
      standing, bytes, start = standing - 1, bytes - size(entry), number(tonumber(at) + 1) .. '-0'
      gone[#gone + 1] = at .. ':' .. entry[2][2]
      ats[#ats + 1] = at
    end
    if #gone > 0 then
      redis.call('RPUSH', KEYS[7], unpack(gone))
      redis.call('SREM', KEYS[8], unpack(ats))
    end
    dropped, step = dropped + #gone, math.min(2 * step, CHUNK)
  end
  if dropped > 0 then redis.call('XTRIM', KEYS[5], 'MINID', start) end
end
drop()
write()

local excess = math.min(redis.call('LLEN', KEYS[7]) - room, most)
while excess > 0 do
  local count = math.min(excess, CHUNK)
  excess = excess - count
  local ats, ids = {}, {}
  for i, tombstone in ipairs(redis.call('LPOP', KEYS[7], number(count))) do
    ats[i], ids[i] = string.match(tombstone, '^(%d+):(.*)$')
  end
  local gone = {}
  for i, at in ipairs(redis.call('HMGET', KEYS[6], unpack(ids))) do
    if at == ats[i] then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then redis.call('HDEL', KEYS[6], unpack(gone)) end
end
return receipt(head)
""",
)

# birth, ids -> time and data of each; 1 for a tombstone, nil for what is not known
RECALL = Script(
    PRESENT,
    """
local ids = cmsgpack.unpack(ARGV[2])
if #ids == 0 then return {} end
local found = redis.call('HMGET', KEYS[6], unpack(ids))
for i, at in ipairs(found) do
  if at then
    local entry = redis.call('XRANGE', KEYS[5], at .. '-0', at .. '-0')[1]
    found[i] = entry and entry[2][4] or 1
  end
end
return found
""",
)

# birth, before, bytes, limit, after -> upto, 1 where the next one was too large, then id, time and data, label of each
EXPIRED = Script(
    PRESENT,
    NUMBER,
    """
local before, most, limit = cmsgpack.unpack(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local upto = math.max(tonumber(redis.call('HGET', KEYS[1], 'settled') or 0), tonumber(ARGV[5]))
local found, start, sum, step = {upto, 0}, number(upto + 1) .. '-0', 0, 1
while limit > 0 do
  local oldest = redis.call('XRANGE', KEYS[5], start, '+', 'COUNT', math.min(step, limit))
  if #oldest == 0 then break end
  for _, entry in ipairs(oldest) do
    local id, data = entry[2][2], entry[2][4]
    sum = sum + #data - 8
    if #found > 2 and sum > most then
      found[2] = 1
      return found
    end
    if not (struct.unpack('<d', data) < before) then return found end
    found[#found + 1] = id
    found[#found + 1] = data
    local at = string.match(entry[1], '^%d+')
    found[#found + 1] = redis.call('SISMEMBER', KEYS[8], at)
    found[1] = tonumber(at)
  end
  start = number(found[1] + 1) .. '-0'
  limit, step = limit - #oldest, math.min(2 * step, 100)
end
return found
""",
)

# birth, upto -> 1
SETTLE = Script(
    PRESENT,
    NUMBER,
    """
local settled = tonumber(redis.call('HGET', KEYS[1], 'settled') or 0)
redis.call('HSET', KEYS[1], 'settled', number(math.max(settled, tonumber(ARGV[2]))))
return 1
""",
)

# birth -> 1
REOPEN = Script(
    PRESENT,
    """
redis.call('HDEL', KEYS[1], 'settled')
return 1
""",
)

# birth, ids -> 1
LABELLED = Script(
    PRESENT,
    """
local ids = cmsgpack.unpack(ARGV[2])
if #ids == 0 then return 1 end
for _, at in ipairs(redis.call('HMGET', KEYS[6], unpack(ids))) do
  if at and #redis.call('XRANGE', KEYS[5], at .. '-0', at .. '-0') > 0 then redis.call('SADD', KEYS[8], at) end
end
return 1
""",
)


def pack_events(remembered: Sequence[ServedEvent], bounds: ServedLimits) -> tuple[bytes, bytes]:
    """The last two arguments of SERVE. Bounds are doubles: as wide as the caller likes."""
    events = latest(remembered)
    told = (
        [float(bounds.events), float(bounds.bytes), float(bounds.before)],
        len(events) + DROPS,
        [event.id for event in events],
        [float(event.time) for event in events],
        [len(event.data) for event in events],
    )
    return msgspec.msgpack.encode(told), b"".join([event.data for event in events])


def pack_ids(ids: Sequence[str]) -> bytes:
    """The last argument of RECALL and LABELLED."""
    return msgspec.msgpack.encode(list(ids))


def pack_time(time: float) -> bytes:
    """An argument of EXPIRED. As a double, which Lua reads from no text when it is infinite."""
    return msgspec.msgpack.encode(float(time))


def recalled_in(reply: list[Any], ids: Sequence[str]) -> list[ServedEvent | bool | None]:
    """What the reply of RECALL says of each id."""
    return [
        _remembered(id, found) if isinstance(found, bytes) else found and True
        for id, found in zip(ids, reply, strict=True)
    ]


def expired_in(reply: list[Any], limit: int) -> ExpiredEvents:
    """What the reply of EXPIRED holds."""
    upto, large, *flat = reply
    events = [_remembered(id.decode(), found) for id, found in zip(flat[::3], flat[1::3], strict=True)]
    return ExpiredEvents(upto, events, [has == 1 for has in flat[2::3]], bool(large) or len(events) == limit)


def _remembered(id: str, found: bytes) -> ServedEvent:
    (time,) = _TIME.unpack_from(found)
    return ServedEvent(id, time, found[_TIME.size :])
