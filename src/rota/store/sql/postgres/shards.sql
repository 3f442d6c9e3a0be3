-- name: put_member
INSERT INTO member (service, worker_id, details)
SELECT * FROM unnest(:service::bigint[], :worker_id::text[], :details::bytea[])
    ON CONFLICT (service, worker_id) DO UPDATE SET details = excluded.details

-- name: record_heartbeat
INSERT INTO member_seen (member, seen_ms)
SELECT m.number, max(one.seen_ms)
  FROM unnest(:seen_ms::bigint[], :service::bigint[], :worker_id::text[])
            AS one (seen_ms, service, worker_id)
 CROSS JOIN member AS m ON m.service = one.service AND m.worker_id = one.worker_id
 GROUP BY m.number
    ON CONFLICT (member) DO UPDATE SET seen_ms = excluded.seen_ms

-- name: drop_seen
DELETE FROM member_seen
 USING (SELECT s.place FROM unnest(:service::bigint[], :worker_id::text[])
            AS one (service, worker_id)
         CROSS JOIN LATERAL (SELECT number FROM member
                              WHERE service = one.service AND worker_id = one.worker_id
                             OFFSET 0) AS m
         CROSS JOIN LATERAL (SELECT ctid AS place FROM member_seen
                              WHERE member = m.number OFFSET 0) AS s) AS found
 WHERE member_seen.ctid = found.place

-- name: drop_member
DELETE FROM member
 USING (SELECT m.place FROM unnest(:service::bigint[], :worker_id::text[])
            AS one (service, worker_id)
         CROSS JOIN LATERAL (SELECT ctid AS place FROM member
                              WHERE service = one.service AND worker_id = one.worker_id
                             OFFSET 0) AS m) AS found
 WHERE member.ctid = found.place

-- name: put_range
INSERT INTO shard (service, epoch, owner, target, revoked_in, shard)
SELECT :service::bigint, :epoch::bigint, :owner::bigint, :target::bigint, :revoked_in::bigint,
       unnest(:shards::bigint[])
    ON CONFLICT (service, shard) DO UPDATE
   SET epoch = excluded.epoch, owner = excluded.owner, target = excluded.target,
       revoked_in = excluded.revoked_in

-- name: put_shard
INSERT INTO shard (service, shard, epoch, owner, target, revoked_in)
SELECT * FROM unnest(:service::bigint[], :shard::bigint[], :epoch::bigint[], :owner::bigint[],
                     :target::bigint[], :revoked_in::bigint[])
    ON CONFLICT (service, shard) DO UPDATE
   SET epoch = excluded.epoch, owner = excluded.owner, target = excluded.target,
       revoked_in = excluded.revoked_in

-- name: put_checkpoint
-- Of several checkpoints of one shard, the last of the highest epoch counts.
INSERT INTO shard_checkpoint (service, shard, epoch, saved_at_ms, value)
SELECT DISTINCT ON (service, shard) service, shard, epoch, saved_at_ms, value
  FROM unnest(:service::bigint[], :shard::bigint[], :epoch::bigint[], :saved_at_ms::bigint[],
              :value::bytea[])
  WITH ORDINALITY AS one (service, shard, epoch, saved_at_ms, value, n)
 ORDER BY service, shard, epoch DESC, n DESC
    ON CONFLICT (service, shard) DO UPDATE
   SET epoch = excluded.epoch, saved_at_ms = excluded.saved_at_ms, value = excluded.value
 WHERE excluded.epoch >= shard_checkpoint.epoch
