-- name: service_names
-- The names of all services.
SELECT name FROM service ORDER BY name

-- name: summaries
-- Every service with the counts of its members and shards.
SELECT s.name, s.shard_count, s.pinned, s.min_protocol, s.generation,
       (SELECT count(*) FROM member AS m WHERE m.service = s.number) AS members,
       s.shard_count - (SELECT count(o.owner) FROM shard AS o WHERE o.service = s.number
           AND o.shard < s.shard_count) AS unowned,
       (SELECT count(o.owner) FROM shard AS o WHERE o.service = s.number
           AND o.revoked_in IS NOT NULL) AS moving
  FROM service AS s ORDER BY s.name

-- name: service
-- One service.
SELECT name, shard_count, pinned, min_protocol, generation, superseded
  FROM service WHERE name = :name

-- name: members
-- The members of a service.
SELECT m.number, m.details, s.seen_ms
  FROM member AS m CROSS JOIN member_seen AS s ON s.member = m.number
 WHERE m.service = :service ORDER BY m.worker_id

-- name: shards
-- The shards of a service. Owner and target are numbers of members.
SELECT shard, epoch, owner, target, revoked_in FROM shard WHERE service = :service ORDER BY shard

-- name: put_service
-- Insert or update a service.
INSERT INTO service (name, shard_count, pinned, min_protocol, generation, superseded)
VALUES (:name, :shard_count, :pinned, :min_protocol, :generation, :superseded)
    ON CONFLICT (name) DO UPDATE
   SET shard_count = excluded.shard_count, pinned = excluded.pinned,
       min_protocol = excluded.min_protocol, generation = excluded.generation,
       superseded = excluded.superseded

-- name: service_number
-- The number of a service.
SELECT number FROM service WHERE name = :name

-- name: put_member
-- Insert or update a member.
INSERT INTO member (service, worker_id, details) VALUES (:service, :worker_id, :details)
    ON CONFLICT (service, worker_id) DO UPDATE SET details = excluded.details

-- name: record_heartbeat
-- Store the time of a member's heartbeat. Matches no row when the member is gone.
INSERT OR REPLACE INTO member_seen (member, seen_ms)
SELECT number, :seen_ms FROM member WHERE service = :service AND worker_id = :worker_id

-- name: drop_seen
-- Delete the time of a member's heartbeat.
DELETE FROM member_seen
 WHERE member = (SELECT number FROM member WHERE service = :service AND worker_id = :worker_id)

-- name: drop_member
-- Delete a member.
DELETE FROM member WHERE service = :service AND worker_id = :worker_id

-- name: member_numbers
-- The numbers of these members of a service.
SELECT m.worker_id, m.number
  FROM carray(:worker_ids) AS wanted
 CROSS JOIN member AS m ON m.service = :service AND m.worker_id = CAST(wanted.value AS TEXT)

-- name: put_shard
-- Insert or replace a shard.
INSERT OR REPLACE INTO shard (service, shard, epoch, owner, target, revoked_in)
VALUES (:service, :shard, :epoch, :owner, :target, :revoked_in)

-- name: update_range
-- Update a range of shards. Matches fewer rows than the range has shards when some are new.
UPDATE shard SET epoch = :epoch, owner = :owner, target = :target, revoked_in = :revoked_in
 WHERE service = :service AND shard BETWEEN :first AND :last

-- name: put_range
-- Insert or replace shards that are equal but for their number.
INSERT OR REPLACE INTO shard (service, shard, epoch, owner, target, revoked_in)
SELECT :service, value, :epoch, :owner, :target, :revoked_in FROM carray(:shards)

-- name: put_checkpoint
-- Insert or update a checkpoint. One of an older epoch than the stored one changes nothing.
INSERT INTO shard_checkpoint (service, shard, epoch, saved_at_ms, value)
VALUES (:service, :shard, :epoch, :saved_at_ms, :value)
    ON CONFLICT (service, shard) DO UPDATE
   SET epoch = excluded.epoch, saved_at_ms = excluded.saved_at_ms, value = excluded.value
 WHERE excluded.epoch >= epoch

-- name: checkpoint
-- The checkpoint of a shard.
SELECT s.name AS service, c.shard, c.epoch, c.saved_at_ms, c.value
  FROM service AS s CROSS JOIN shard_checkpoint AS c ON c.service = s.number
 WHERE s.name = :service AND c.shard = :shard
