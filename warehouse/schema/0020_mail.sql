-- Which mails went out, so that none goes twice; and who wants none.
CREATE TABLE mail (
    mail_id VARCHAR NOT NULL,
    report VARCHAR NOT NULL,
    audience VARCHAR NOT NULL,
    recipient VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    reason VARCHAR,
    changed_at TIMESTAMP NOT NULL
);
CREATE TABLE mail_refusal (
    recipient VARCHAR NOT NULL,
    refused_at TIMESTAMP NOT NULL
);
