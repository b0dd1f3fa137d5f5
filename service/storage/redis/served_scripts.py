"""The served events of the Redis store: its scripts, their arguments and their replies.

An event is an entry `<number>-0` of a stream, in served order, because streams pack entries by the dozen. A hash maps
the event's id to its number. A dropped event is removed from the stream but not from the hash. A number in the hash
without an entry in the stream is a tombstone. A list of `<number>:<id>`, in the order of dropping, says which tombstone
goes next. If the hash has another number for the id, the event was served again since and stays. Another hash has the
labels of the entries whose label arrived; earlier releases had the numbers of these in a set.

An event takes about 170 bytes besides its id and data. An event that is removed from the middle, because its id was
served again, leaves its bytes unused until its neighbours, up to 4 KB of them, are removed too.

The data of a call's events are one argument, and everything else is one MessagePack argument. Redis reads two arguments
faster than two hundred thousand. The scripts pass up to `CHUNK` values at a time to one command, the most that `unpack`
can carry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from service.storage.redis.scripts import NUMBER, PRESENT, Script
from service.storage.served_labels import LABEL_BYTES, MAX_LABELS, ServedLabel, pack_labels, unpack_labels
from service.storage.store_protocol import DROPS, ExpiredEvents, ServedEvent, ServedLimits, ServedPage, latest

__all__ = [
    "ERASE",
    "EXPIRED",
    "LABELLED",
    "LABELS",
    "PENDING",
    "RECALL",
    "REOPEN",
    "SERVE",
    "SERVED",
    "SETTLE",
    "expired_in",
    "labels_of",
    "pack_events",
    "pack_ids",
    "pack_labelled",
    "pack_time",
    "recalled_in",
    "served_in",
]

_TIME = struct.Struct("<d")  # the time precedes the data in the stream

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

-- Removes the entry of this number; returns whether there was one.
local function take(at)
  local entry = redis.call('XRANGE', KEYS[5], at .. '-0', at .. '-0')[1]
  if not entry then return false end
  redis.call('XDEL', KEYS[5], entry[1])
  redis.call('SREM', KEYS[8], at)
  redis.call('HDEL', KEYS[9], at)
  bytes = bytes - size(entry)
  return true
end
"""

# birth -> events, bytes, expired, evicted
PENDING = Script(PRESENT, _COUNTS, "return pending()")

# birth, token, record, after, (bounds, drops at most, ids, times, sizes), data
#   -> position, token of the preceding record, then as PENDING; only `trimmed` if the log is trimmed past `after`
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

-- Doubles the step each time: mostly about as many events are dropped as arrived, or none.
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
      redis.call('HDEL', KEYS[9], unpack(ats))
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

# birth, ids -> time and data of each; 1 for a tombstone, nil for an unknown id
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

# The labels of entries, each as its bytes; '1' if an earlier release noted that there is one; '' for none. One call for
# all entries, because a call takes longer than its work.
_LABELS_OF = """
local function labels_of(ats)
  local labels = redis.call('HMGET', KEYS[9], unpack(ats))
  local noted = redis.call('SMISMEMBER', KEYS[8], unpack(ats))
  for i = 1, #ats do labels[i] = labels[i] or noted[i] == 1 and '1' or '' end
  return labels
end
"""

# Lists of thousands of texts, as their sizes and all in one, because a client takes longer to read texts one by one.
_JOINED = """
local function packed(numbers) return #numbers > 0 and cmsgpack.pack(numbers) or '' end
local function with_joined(reply, ...)
  for _, texts in ipairs({...}) do
    local sizes = {}
    for i, text in ipairs(texts) do sizes[i] = #text end
    reply[#reply + 1] = packed(sizes)
    reply[#reply + 1] = table.concat(texts)
  end
  return reply
end
"""

# birth, ids -> the labels of each; '' for an unknown id or a tombstone
LABELS = Script(
    PRESENT,
    _LABELS_OF,
    """
local ids = cmsgpack.unpack(ARGV[2])
if #ids == 0 then return {} end
local ats = redis.call('HMGET', KEYS[6], unpack(ids))
for i = 1, #ids do ats[i] = ats[i] or '' end
return labels_of(ats)
""",
)

# birth, bytes, limit, 1 for newest first, number behind which to begin -> 1 if there may be more, and the numbers; then
# labels, ids and data, joined
SERVED = Script(
    PRESENT,
    NUMBER,
    _LABELS_OF,
    _JOINED,
    """
local most, limit, back, bound = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local numbers, labels, ids, data, sum, step, more = {}, {}, {}, {}, 0, 1, 0
while more == 0 do
  local entries
  if back then
    entries = redis.call('XREVRANGE', KEYS[5], number(bound - 1) .. '-0', '-', 'COUNT', step)
  else
    entries = redis.call('XRANGE', KEYS[5], number(bound + 1) .. '-0', '+', 'COUNT', step)
  end
  if #entries == 0 then break end
  local ats = {}
  for i, entry in ipairs(entries) do ats[i] = string.match(entry[1], '^%d+') end
  local labels_here = labels_of(ats)
  for i, entry in ipairs(entries) do
    sum = sum + #entry[2][4] - 8
    if #ids == limit or (#ids > 0 and sum > most) then
      more = 1
      break
    end
    bound = tonumber(ats[i])
    numbers[#numbers + 1] = bound
    labels[#labels + 1] = labels_here[i]
    ids[#ids + 1] = entry[2][2]
    data[#data + 1] = entry[2][4]
  end
  step = math.min(2 * step, 100)
end
return with_joined({more, packed(numbers)}, labels, ids, data)
""",
)

# birth, before, bytes, limit, after -> upto, 1 if the next one was too large; then labels, ids and data, joined
EXPIRED = Script(
    PRESENT,
    NUMBER,
    _LABELS_OF,
    _JOINED,
    """
local before, most, limit = cmsgpack.unpack(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local upto = math.max(tonumber(redis.call('HGET', KEYS[1], 'settled') or 0), tonumber(ARGV[5]))
local labels, ids, data, large, sum, step, ended = {}, {}, {}, 0, 0, 1, false
while #ids < limit and not ended do
  local oldest = redis.call('XRANGE', KEYS[5], number(upto + 1) .. '-0', '+', 'COUNT', math.min(step, limit - #ids))
  if #oldest == 0 then break end
  local ats = {}
  for i, entry in ipairs(oldest) do ats[i] = string.match(entry[1], '^%d+') end
  local labels_here = labels_of(ats)
  for i, entry in ipairs(oldest) do
    sum = sum + #entry[2][4] - 8
    large = #ids > 0 and sum > most and 1 or 0
    ended = large == 1 or not (struct.unpack('<d', entry[2][4]) < before)
    if ended then break end
    labels[#labels + 1] = labels_here[i]
    ids[#ids + 1] = entry[2][2]
    data[#data + 1] = entry[2][4]
    upto = tonumber(ats[i])
  end
  step = math.min(2 * step, 100)
end
return with_joined({upto, large}, labels, ids, data)
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

# birth, (ids, bytes of the labels of each), all labels -> 1. It adds them as `served_labels.add_labels` does.
LABELLED = Script(
    PRESENT,
    f"""
local ids, sizes = unpack(cmsgpack.unpack(ARGV[2]))
if #ids == 0 then return 1 end
local start = 1
for i, at in ipairs(redis.call('HMGET', KEYS[6], unpack(ids))) do
  local from, stop = start, start + sizes[i]
  start = stop
  if at and #redis.call('XRANGE', KEYS[5], at .. '-0', at .. '-0') > 0 then
    local stored = redis.call('HGET', KEYS[9], at) or ''
    local reported, last = -1, nil
    if #stored > 0 then reported, last = struct.unpack('<db', stored, #stored - {LABEL_BYTES - 1}) end
    for place = from, stop - 1, {LABEL_BYTES} do
      local position, label = struct.unpack('<db', ARGV[3], place)
      if position > reported and label ~= last then
        stored, last = stored .. string.sub(ARGV[3], place, place + {LABEL_BYTES - 1}), label
      end
    end
    redis.call('HSET', KEYS[9], at, string.sub(stored, -{MAX_LABELS * LABEL_BYTES}))
  end
end
return 1
""",
)


# birth, id -> 1 if there was an event or a tombstone, else 0
ERASE = Script(
    PRESENT,
    NUMBER,
    _COUNTS,
    _CHANGES,
    """
local at = redis.call('HGET', KEYS[6], ARGV[2])
if not at then return 0 end
take(at)
write()
redis.call('HDEL', KEYS[6], ARGV[2])
-- The place of a tombstone stays, because tombstones are counted.
local place = redis.call('LPOS', KEYS[7], at .. ':' .. ARGV[2])
if place then redis.call('LSET', KEYS[7], place, at .. ':') end
return 1
""",
)


def pack_events(remembered: Sequence[ServedEvent], limits: ServedLimits) -> tuple[bytes, bytes]:
    """Pack the last two arguments of SERVE. Limits become doubles, which have any range."""
    events = latest(remembered)
    arguments = (
        [float(limits.events), float(limits.bytes), float(limits.before)],
        len(events) + DROPS,
        [event.id for event in events],
        [float(event.time) for event in events],
        [len(event.data) for event in events],
    )
    return msgspec.msgpack.encode(arguments), b"".join([event.data for event in events])


def pack_labelled(labels: Sequence[tuple[str, Sequence[ServedLabel]]]) -> tuple[bytes, bytes]:
    """Pack the last two arguments of LABELLED."""
    packed = [pack_labels(new) for _, new in labels]
    return msgspec.msgpack.encode(([id for id, _ in labels], [len(new) for new in packed])), b"".join(packed)


def pack_ids(ids: Sequence[str]) -> bytes:
    """Pack the last argument of RECALL and LABELS."""
    return msgspec.msgpack.encode(list(ids))


def pack_time(time: float) -> bytes:
    """Pack an argument of EXPIRED as a double, because Lua cannot parse an infinite number from text."""
    return msgspec.msgpack.encode(float(time))


def recalled_in(replies: list[Any], ids: Sequence[str]) -> list[ServedEvent | bool | None]:
    """Decode the reply of RECALL for each id."""
    return [
        _event_of(id, reply) if isinstance(reply, bytes) else reply and True
        for id, reply in zip(ids, replies, strict=True)
    ]


def expired_in(reply: list[Any], limit: int) -> ExpiredEvents:
    """Decode the reply of EXPIRED."""
    upto, large, *joined = reply
    labels, ids, packed = _texts_in(joined)
    events = [_event_of(id.decode(), data) for id, data in zip(ids, packed, strict=True)]
    return ExpiredEvents(upto, events, [bool(label) for label in labels], bool(large) or len(events) == limit)


def served_in(reply: list[Any]) -> ServedPage:
    """Decode the reply of SERVED."""
    more, numbers, *joined = reply
    labels, ids, packed = _texts_in(joined)
    events = [_event_of(id.decode(), data) for id, data in zip(ids, packed, strict=True)]
    return ServedPage(events, _whole_numbers(numbers), [labels_of(label) for label in labels], bool(more))


def labels_of(reply: bytes) -> list[ServedLabel] | None:
    """Decode what the scripts say of the labels of an event."""
    return None if not reply else [] if reply == b"1" else unpack_labels(reply)


def _texts_in(joined: list[bytes]) -> list[list[bytes]]:
    """Take apart the lists of texts of a reply, of each of which there are the sizes and all in one."""
    lists = []
    for sizes, text in zip(joined[::2], joined[1::2], strict=True):
        ends = list(accumulate(_whole_numbers(sizes), initial=0))
        lists.append([text[start:end] for start, end in pairwise(ends)])
    return lists


def _whole_numbers(packed: bytes) -> list[int]:
    return msgspec.msgpack.decode(packed, type=list[int]) if packed else []


def _event_of(id: str, packed: bytes) -> ServedEvent:
    (time,) = _TIME.unpack_from(packed)
    return ServedEvent(id, time, packed[_TIME.size :])
