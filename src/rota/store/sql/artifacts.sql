-- name: stage
-- Insert an artifact that is not committed yet.
INSERT INTO artifact (run, name, task, fence, media_type, size, file, created_at_ms, content, owner)
VALUES (:run, :name, :task, :fence, :media_type, :size, :file, :created_at_ms, :content, :owner)

-- name: unstage
-- Delete what the same attempt attached under the same name before.
DELETE FROM artifact
 WHERE task = :task AND fence = :fence AND run = :run AND name = :name AND committed_at_ms IS NULL
RETURNING file

-- name: staged_usage
-- Number and size of the artifacts that an attempt has staged.
SELECT count(*) AS rows, coalesce(sum(size), 0) AS size FROM artifact
 WHERE task = :task AND fence = :fence AND committed_at_ms IS NULL

-- name: usage
-- Number and size of all artifacts, by owner. Reads a whole index.
SELECT owner, count(*), sum(size) FROM artifact GROUP BY owner

-- name: has_staged
-- Whether any artifact is staged.
SELECT EXISTS (SELECT 1 FROM artifact WHERE committed_at_ms IS NULL)

-- name: commit
-- Commit what an attempt has staged.
UPDATE artifact SET committed_at_ms = :committed_at_ms
 WHERE task = :task AND fence = :fence AND committed_at_ms IS NULL

-- name: drop_staged
-- Delete what attempts of these tasks have staged.
DELETE FROM artifact WHERE task IN carray(:tasks) AND committed_at_ms IS NULL RETURNING file

-- name: drop_of_runs
-- Delete every artifact of these runs.
DELETE FROM artifact WHERE run IN carray(:runs) RETURNING file

-- name: files
-- The files that artifacts name.
SELECT file FROM artifact WHERE file IS NOT NULL

-- name: page
-- Committed artifacts of a run, newest first.
SELECT id, run, name, task, fence, media_type, size, file, created_at_ms, committed_at_ms
  FROM artifact WHERE run = :run AND id < :before AND committed_at_ms IS NOT NULL
 ORDER BY id DESC LIMIT :limit

-- name: newest
-- The committed artifact of a name that was attached last.
SELECT id, run, name, task, fence, media_type, size, file, created_at_ms, committed_at_ms
  FROM artifact INDEXED BY artifact_by_name
 WHERE run = :run AND name = :name AND committed_at_ms IS NOT NULL
 ORDER BY id DESC LIMIT 1

-- name: content
-- The content of an artifact that is kept in its row.
SELECT content FROM artifact WHERE id = :id
