-- name: stage
INSERT INTO artifact (run, name, task, fence, media_type, size, file, created_at_ms, content)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: unstage
-- What the same attempt attached under the same name before.
DELETE FROM artifact
 WHERE task = ? AND fence = ? AND run = ? AND name = ? AND committed_at_ms IS NULL
RETURNING file

-- name: count_staged
SELECT count(*) FROM artifact WHERE task = ? AND fence = ? AND committed_at_ms IS NULL

-- name: any_staged
SELECT EXISTS (SELECT 1 FROM artifact WHERE committed_at_ms IS NULL)

-- name: commit
UPDATE artifact SET committed_at_ms = ? WHERE task = ? AND fence = ? AND committed_at_ms IS NULL

-- name: drop_staged
DELETE FROM artifact WHERE task IN carray(?) AND committed_at_ms IS NULL RETURNING file

-- name: drop_of_runs
DELETE FROM artifact WHERE run IN carray(?) RETURNING file

-- name: files
SELECT file FROM artifact WHERE file IS NOT NULL

-- name: page
SELECT id, run, name, task, fence, media_type, size, file, created_at_ms, committed_at_ms
  FROM artifact WHERE run = ? AND id < ? AND committed_at_ms IS NOT NULL
 ORDER BY id DESC LIMIT ?

-- name: newest
SELECT id, run, name, task, fence, media_type, size, file, created_at_ms, committed_at_ms
  FROM artifact INDEXED BY artifact_by_name
 WHERE run = ? AND name = ? AND committed_at_ms IS NOT NULL
 ORDER BY id DESC LIMIT 1

-- name: content
SELECT content FROM artifact WHERE id = ?
