-- The version of a workflow with the highest number is current; -1: it was never published.
ALTER TABLE workflow ADD COLUMN put_number INTEGER NOT NULL DEFAULT 0;
UPDATE workflow SET put_number = version;
