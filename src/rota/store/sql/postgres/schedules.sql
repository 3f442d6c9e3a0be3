-- name: advance
UPDATE schedule SET due_ms = one.due_ms, is_waiting = one.is_waiting, state = one.state
  FROM unnest(:due_ms::bigint[], :is_waiting::bigint[], :state::bytea[], :name::text[])
    AS one (due_ms, is_waiting, state, name)
 WHERE schedule.name = one.name

-- name: put_firing
INSERT INTO schedule_firing (schedule, slot, number, firing)
SELECT * FROM unnest(:schedule::text[], :slot::bigint[], :number::bigint[], :firing::bytea[])
    ON CONFLICT (schedule, slot) DO UPDATE SET number = excluded.number, firing = excluded.firing
