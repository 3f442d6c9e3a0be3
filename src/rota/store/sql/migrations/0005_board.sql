-- What lists and filters walk along: the finished tasks of each lane and state, in order. Each row
-- of history stands in one of these, so finishing writes one entry more, and counts come from here.
DROP INDEX history_failed;
DROP INDEX history_cancelled;
CREATE INDEX history_succeeded ON history (lane, id) WHERE state = 'succeeded';
CREATE INDEX history_failed ON history (lane, id) WHERE state = 'failed';
CREATE INDEX history_cancelled ON history (lane, id) WHERE state = 'cancelled';

-- What a failed task failed of, so that failures are grouped without reading their errors. NULL in
-- rows from before: the coordinator works it out when it starts.
ALTER TABLE history ADD COLUMN cause TEXT;
CREATE INDEX history_by_cause ON history (cause, lane, finished_at_ms, id) WHERE state = 'failed';

-- How queues did, minute by minute: the charts of the last hour outlive a restart. The queue '' is
-- all of them together, for no queue has an empty name.
CREATE TABLE minute (
  started_at_ms INTEGER NOT NULL,
  queue         TEXT    NOT NULL,
  slots         BLOB    NOT NULL,
  PRIMARY KEY (started_at_ms, queue)
) WITHOUT ROWID;
