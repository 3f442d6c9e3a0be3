-- name: add
-- Insert a version of a workflow.
INSERT INTO workflow (name, version, hash, definition, created_at_ms, put_number)
VALUES (:name, :version, :hash, :definition, :created_at_ms, :put_number)

-- name: publish
-- Make a version the current one of its workflow.
UPDATE workflow SET put_number = :put_number WHERE name = :name AND version = :version

-- name: by_hash
-- The version of a workflow with this content.
SELECT name, version, hash, created_at_ms, put_number FROM workflow
 WHERE name = :name AND hash = :hash

-- name: highest
-- The highest version of a workflow.
SELECT max(version) FROM workflow WHERE name = :name

-- name: last_put
-- The number of the current version of a workflow among those that were made current.
SELECT max(put_number) FROM workflow WHERE name = :name

-- name: current
-- The current version of a workflow: the one that was put last.
SELECT max(version) FROM workflow
 WHERE name = :name AND put_number >= 0
   AND put_number = (SELECT max(put_number) FROM workflow WHERE name = :name)

-- name: version
-- One version of a workflow.
SELECT name, version, hash, created_at_ms, put_number FROM workflow
 WHERE name = :name AND version = :version

-- name: definition
-- The definition of one version of a workflow.
SELECT definition FROM workflow WHERE name = :name AND version = :version

-- name: versions
-- All versions of a workflow, newest first.
SELECT name, version, hash, created_at_ms, put_number FROM workflow
 WHERE name = :name ORDER BY version DESC

-- name: all
-- The current version of every workflow; the newest of one that was never published.
SELECT name, version, hash, created_at_ms, max(put_number) AS put_number
  FROM workflow GROUP BY name ORDER BY name
