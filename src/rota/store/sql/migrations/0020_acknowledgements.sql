-- Who has acknowledged a failed task, when and why. What nobody has acknowledged asks for attention.
ALTER TABLE history ADD COLUMN acknowledgement BLOB;
ALTER TABLE history ADD COLUMN is_acknowledged INTEGER NOT NULL DEFAULT 0;
DROP INDEX history_by_cause;
CREATE INDEX history_unacknowledged ON history (cause, lane, finished_at_ms, id)
 WHERE state = 'failed' AND is_acknowledged = 0;
CREATE INDEX history_acknowledged ON history (cause, lane, finished_at_ms, id)
 WHERE state = 'failed' AND is_acknowledged = 1;
