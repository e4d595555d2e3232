-- By how many rows a commit changed the sample tables of this file (tables of warehouse/opening.py, TALLIED); unknown for
-- commits of earlier versions. The first start counts, and every later one holds the sum against the rows there are.
ALTER TABLE committed ADD COLUMN hot_rows BIGINT;
