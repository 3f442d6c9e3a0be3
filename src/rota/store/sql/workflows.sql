-- name: add
-- Insert a version of a workflow.
INSERT INTO workflow (name, version, hash, definition, created_at_ms)
VALUES (:name, :version, :hash, :definition, :created_at_ms)

-- name: by_hash
-- The version of a workflow with this content.
SELECT name, version, hash, created_at_ms FROM workflow WHERE name = :name AND hash = :hash

-- name: newest
-- The highest version of a workflow.
SELECT max(version) FROM workflow WHERE name = :name

-- name: version
-- One version of a workflow.
SELECT name, version, hash, created_at_ms FROM workflow WHERE name = :name AND version = :version

-- name: definition
-- The definition of one version of a workflow.
SELECT definition FROM workflow WHERE name = :name AND version = :version

-- name: versions
-- All versions of a workflow, newest first.
SELECT name, version, hash, created_at_ms FROM workflow WHERE name = :name ORDER BY version DESC

-- name: all
-- The newest version of every workflow.
SELECT name, max(version) AS version, hash, created_at_ms FROM workflow GROUP BY name ORDER BY name
