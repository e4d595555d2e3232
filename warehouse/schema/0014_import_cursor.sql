-- Up to when a collector has brought in what a scheduler knows: it goes on from there after a restart.
CREATE TABLE import_cursor (
    format VARCHAR NOT NULL,
    cluster VARCHAR NOT NULL,
    until_at TIMESTAMP NOT NULL,
    moved_at TIMESTAMP NOT NULL,
    PRIMARY KEY (format, cluster)
);
