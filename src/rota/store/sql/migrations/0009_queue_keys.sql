-- A key is unique within its queue, so that the submitters of one queue neither see nor block the
-- tasks of another. Existing keys belong to the queue of their task.
CREATE TABLE queue_key (
  key   TEXT    NOT NULL,
  queue TEXT    NOT NULL,
  id    INTEGER NOT NULL,
  PRIMARY KEY (key, queue)
) WITHOUT ROWID;
INSERT INTO queue_key (key, queue, id)
SELECT k.key, l.queue, k.id
  FROM task_key AS k CROSS JOIN task AS t ON t.id = k.id CROSS JOIN lane AS l ON l.number = t.lane;
INSERT INTO queue_key (key, queue, id)
SELECT k.key, l.queue, k.id
  FROM task_key AS k CROSS JOIN history AS h ON h.id = k.id CROSS JOIN lane AS l ON l.number = h.lane;
DROP TABLE task_key;
ALTER TABLE queue_key RENAME TO task_key;

-- Keys of sessions begin with 'session:'. A caller's key that begins like that is kept with
-- 'caller-key:' before it from now on, and so is one that begins with 'caller-key:' itself.
UPDATE task SET key = 'caller-key:' || key
 WHERE id IN (SELECT id FROM task_key WHERE key >= 'caller-key:' AND key < 'caller-key;');
UPDATE history SET key = 'caller-key:' || key
 WHERE id IN (SELECT id FROM task_key WHERE key >= 'caller-key:' AND key < 'caller-key;');
CREATE TEMP TABLE escaped AS
SELECT key, queue, id FROM task_key WHERE key >= 'caller-key:' AND key < 'caller-key;';
DELETE FROM task_key WHERE key >= 'caller-key:' AND key < 'caller-key;';
INSERT INTO task_key (key, queue, id) SELECT 'caller-key:' || key, queue, id FROM escaped;
DROP TABLE escaped;
