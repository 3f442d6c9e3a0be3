-- name: names
SELECT name FROM service ORDER BY name

-- name: summaries
SELECT s.name, s.shard_count, s.pinned, s.min_protocol, s.generation,
       (SELECT count(*) FROM member AS m WHERE m.service = s.number),
       (SELECT count(o.owner) FROM shard AS o WHERE o.service = s.number
           AND o.shard < s.shard_count),
       (SELECT count(o.owner) FROM shard AS o WHERE o.service = s.number
           AND o.revoked_in IS NOT NULL)
  FROM service AS s ORDER BY s.name

-- name: service
SELECT number, name, shard_count, pinned, min_protocol, generation, superseded, version, agenda
  FROM service WHERE name = ?

-- name: versions
SELECT name, version FROM service

-- name: note_version
UPDATE service SET version = ?, agenda = ? WHERE number = ?

-- name: seen_since
SELECT m.service, m.worker_id, s.seen_ms
  FROM member_seen AS s CROSS JOIN member AS m ON m.number = s.member
 WHERE s.seen_ms >= ?

-- name: members
SELECT m.number, m.details, s.seen_ms
  FROM member AS m CROSS JOIN member_seen AS s ON s.member = m.number
 WHERE m.service = ? ORDER BY m.worker_id

-- name: shards
SELECT shard, epoch, owner, target, revoked_in FROM shard WHERE service = ? ORDER BY shard

-- name: put_service
INSERT INTO service (name, shard_count, pinned, min_protocol, generation, superseded)
VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE
   SET shard_count = excluded.shard_count, pinned = excluded.pinned,
       min_protocol = excluded.min_protocol, generation = excluded.generation,
       superseded = excluded.superseded

-- name: number
SELECT number FROM service WHERE name = ?

-- name: put_member
INSERT INTO member (service, worker_id, details) VALUES (?, ?, ?)
    ON CONFLICT (service, worker_id) DO UPDATE SET details = excluded.details

-- name: note_seen
-- Matches no row when the member is gone.
INSERT OR REPLACE INTO member_seen (member, seen_ms)
SELECT number, ? FROM member WHERE service = ? AND worker_id = ?

-- name: drop_seen
DELETE FROM member_seen
 WHERE member = (SELECT number FROM member WHERE service = ? AND worker_id = ?)

-- name: drop_member
DELETE FROM member WHERE service = ? AND worker_id = ?

-- name: member_numbers
SELECT m.worker_id, m.number
  FROM carray(?) AS wanted
 CROSS JOIN member AS m ON m.service = ? AND m.worker_id = CAST(wanted.value AS TEXT)

-- name: put_shard
INSERT OR REPLACE INTO shard (service, shard, epoch, owner, target, revoked_in)
VALUES (?, ?, ?, ?, ?, ?)

-- name: change_run
-- Matches fewer rows than there are shards when some of them are new.
UPDATE shard SET epoch = ?, owner = ?, target = ?, revoked_in = ?
 WHERE service = ? AND shard BETWEEN ? AND ?

-- name: put_run
INSERT OR REPLACE INTO shard (service, shard, epoch, owner, target, revoked_in)
SELECT ?, value, ?, ?, ?, ? FROM carray(?)

-- name: put_checkpoint
-- An older epoch than the stored one has nothing more to say.
INSERT INTO shard_checkpoint (service, shard, epoch, saved_at_ms, value) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (service, shard) DO UPDATE
   SET epoch = excluded.epoch, saved_at_ms = excluded.saved_at_ms, value = excluded.value
 WHERE excluded.epoch >= epoch

-- name: checkpoint
SELECT c.epoch, c.saved_at_ms, c.value
  FROM service AS s CROSS JOIN shard_checkpoint AS c ON c.service = s.number
 WHERE s.name = ? AND c.shard = ?
