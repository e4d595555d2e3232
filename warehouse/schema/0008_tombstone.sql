-- Whose data were deleted on request, so that neither batches that are sent again nor a restored backup bring them back.
-- Names are kept as SHA-256 alone. ``swept_at`` is NULL while the lake may still hold rows.
CREATE TABLE tombstone (
    kind VARCHAR NOT NULL,
    name_hash VARCHAR NOT NULL,
    cluster VARCHAR,
    before_at TIMESTAMP NOT NULL,
    purged_at TIMESTAMP NOT NULL,
    swept_at TIMESTAMP
);

-- Keys of deleted jobs and attempts, as SHA-256: rows that name them are refused.
CREATE TABLE purged_key (
    kind VARCHAR NOT NULL,
    key_hash VARCHAR NOT NULL,
    PRIMARY KEY (kind, key_hash)
);
