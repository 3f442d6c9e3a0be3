-- Since when a queue misses its target for how long tasks wait; NULL: it meets it, or has none.
ALTER TABLE queue ADD COLUMN target_missed_ms INTEGER;
