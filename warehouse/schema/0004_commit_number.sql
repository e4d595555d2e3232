-- The number of each commit. Its last value is compared with a counter outside the database: if it is smaller, the
-- write-ahead log lost its tail.
CREATE SEQUENCE commit_number START 1;
