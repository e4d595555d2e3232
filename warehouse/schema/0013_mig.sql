-- MIG instances are devices, parts of a card.

ALTER TABLE device ADD COLUMN minor_number BIGINT;
ALTER TABLE device ADD COLUMN parent_uuid VARCHAR;
ALTER TABLE device ADD COLUMN mig_profile VARCHAR;
ALTER TABLE device ADD COLUMN gpu_instance_id BIGINT;
ALTER TABLE device ADD COLUMN compute_instance_id BIGINT;
ALTER TABLE device ADD COLUMN share_ratio DOUBLE;
