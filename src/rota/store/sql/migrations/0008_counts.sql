-- What a coordinator has counted lately, for the charts and rates of the others.
ALTER TABLE replica ADD COLUMN counts BLOB;
