-- A key is unique within its queue, so that the submitters of one queue neither see nor block the
-- tasks of another. Existing keys belong to the queue of their task.
ALTER TABLE task_key ADD COLUMN queue text COLLATE "C";
ALTER TABLE task_key DROP CONSTRAINT task_key_pkey;
UPDATE task_key SET queue = l.queue
  FROM task AS t JOIN lane AS l ON l.number = t.lane WHERE t.id = task_key.id;
UPDATE task_key SET queue = l.queue
  FROM history AS h JOIN lane AS l ON l.number = h.lane
 WHERE h.id = task_key.id AND task_key.queue IS NULL;

-- Keys of sessions begin with 'session:'. A caller's key that begins like that is kept with
-- 'caller-key:' before it from now on, and so is one that begins with 'caller-key:' itself.
UPDATE task SET key = 'caller-key:' || key
 WHERE id IN (SELECT id FROM task_key WHERE key LIKE 'caller-key:%');
UPDATE history SET key = 'caller-key:' || key
 WHERE id IN (SELECT id FROM task_key WHERE key LIKE 'caller-key:%');
UPDATE task_key SET key = 'caller-key:' || key WHERE key LIKE 'caller-key:%';

-- What does not fit into an entry of an index would keep the schema from being brought up to date:
-- such a key is forgotten. A new one of that size is refused (MAX_KEY_BYTES).
DELETE FROM task_key WHERE queue IS NULL OR octet_length(key) + octet_length(queue) > 2660;
ALTER TABLE task_key ADD PRIMARY KEY (key, queue);

-- A coordinator of the version before says nothing of the queue when it writes a key. It looks for a
-- key over all queues, so it accepts no key twice.
CREATE FUNCTION fill_key_queue() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT l.queue INTO NEW.queue
    FROM task AS t JOIN lane AS l ON l.number = t.lane WHERE t.id = NEW.id;
  RETURN NEW;
END $$;
CREATE TRIGGER fill_key_queue BEFORE INSERT ON task_key
   FOR EACH ROW WHEN (NEW.queue IS NULL) EXECUTE FUNCTION fill_key_queue();

-- The binding of the token that started a job: callers of another binding may not end it.
ALTER TABLE lease ADD COLUMN owner text COLLATE "C";

-- The owner of a value or an artifact is the token that stored it; its share of the bounds is counted
-- by it. Rows from before have none, and so have new ones of coordinators of the version before: they
-- count for nobody.
ALTER TABLE memory ADD COLUMN owner text COLLATE "C";
ALTER TABLE artifact ADD COLUMN owner text COLLATE "C";
CREATE INDEX artifact_by_owner ON artifact (owner) INCLUDE (size);
