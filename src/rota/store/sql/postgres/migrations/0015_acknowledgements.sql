-- Who has acknowledged a failed task, when and why. What nobody has acknowledged asks for attention.
ALTER TABLE history ADD COLUMN acknowledgement bytea;
ALTER TABLE history ADD COLUMN is_acknowledged bigint NOT NULL DEFAULT 0;
CREATE INDEX history_unacknowledged ON history (cause, lane, finished_at_ms, id)
 WHERE state = 'failed' AND is_acknowledged = 0;
CREATE INDEX history_acknowledged ON history (cause, lane, finished_at_ms, id)
 WHERE state = 'failed' AND is_acknowledged = 1;
