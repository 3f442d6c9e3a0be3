-- The binding of the token that started a job: callers of another binding may not end it.
ALTER TABLE lease ADD COLUMN owner TEXT;
