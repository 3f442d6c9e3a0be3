-- The owner of a value or an artifact is the token that stored it; its share of the bounds is counted
-- by it. Rows from before have none, and count for nobody. What each owner has is summed up along
-- these indexes, without a look at the contents.
ALTER TABLE memory ADD COLUMN owner TEXT;
CREATE INDEX memory_by_owner ON memory (owner, length(value));
ALTER TABLE artifact ADD COLUMN owner TEXT;
CREATE INDEX artifact_by_owner ON artifact (owner, size);
