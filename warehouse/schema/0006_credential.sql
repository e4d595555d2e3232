-- Who may do what. Tokens themselves are never kept: only their SHA-256, which is enough for random ones of 256 bits.
CREATE TABLE credential (
    credential_id VARCHAR NOT NULL,
    token_hash VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    node VARCHAR,
    accounts VARCHAR[] NOT NULL,
    created_at TIMESTAMP NOT NULL,
    revoked_at TIMESTAMP,
    last_used_at TIMESTAMP
);
