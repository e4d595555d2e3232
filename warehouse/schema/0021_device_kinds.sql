-- What a device's memory is, and what its energy is read from; null where nobody said.
ALTER TABLE device ADD COLUMN memory_kind VARCHAR;
ALTER TABLE device ADD COLUMN energy_method VARCHAR;
