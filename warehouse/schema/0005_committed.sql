-- The numbers that commits took, as rows: they are there exactly when the rest of the commit is. The sequence alone may
-- run ahead of a log that lost its tail (DuckDB 1.5). Numbers before the last go when the store is opened.
CREATE TABLE committed (number BIGINT NOT NULL);
INSERT INTO committed
SELECT last_value FROM duckdb_sequences() WHERE sequence_name = 'commit_number' AND last_value IS NOT NULL;
