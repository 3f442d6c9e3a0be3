-- Replaced by `history_unacknowledged` and `history_acknowledged`.
DROP INDEX history_by_cause;
