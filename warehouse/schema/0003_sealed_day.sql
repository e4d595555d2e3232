-- Days whose samples lie in the lake, and in which generation. A row of a sample table is in the hot file or in the
-- generation named here, never in both: one transaction moves it.
CREATE TABLE sealed_day (
    table_name VARCHAR NOT NULL,
    date DATE NOT NULL,
    generation BIGINT NOT NULL,
    row_count BIGINT NOT NULL,
    file_bytes BIGINT NOT NULL,
    sealed_at TIMESTAMP NOT NULL,
    PRIMARY KEY (table_name, date)
);
