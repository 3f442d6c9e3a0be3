-- Coordinators that say nothing of the queue when they write a key are gone.
DROP TRIGGER fill_key_queue ON task_key;
DROP FUNCTION fill_key_queue();
