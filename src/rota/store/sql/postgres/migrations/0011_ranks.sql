-- The place in the queue of a task whose priority ages; NULL: it is the negated priority.
ALTER TABLE task ADD COLUMN rank bigint;
