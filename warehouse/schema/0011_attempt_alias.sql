-- What nodes call attempts before accounting has given them their keys (warehouse/contract/node_keys.py), and which
-- attempt each of these node keys means as far as is known now. Renewed when attempts arrive; the rows that carry node
-- keys are never rewritten. Without since_at all rows with the key are meant, else those of [since_at, until_at).
CREATE TABLE attempt_alias (
    node_key VARCHAR NOT NULL,
    cluster VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    scheduler_id VARCHAR NOT NULL,
    attempt_key VARCHAR,
    certainty VARCHAR NOT NULL,
    source VARCHAR,
    since_at TIMESTAMP,
    until_at TIMESTAMP
);

-- A second name that a node may know an attempt by: Slurm's SLUID, or a pod's namespace/name.
ALTER TABLE attempt ADD COLUMN other_id VARCHAR;
