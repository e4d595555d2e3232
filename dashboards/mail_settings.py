"""Settings of the reports that go out by mail: to whom, how often, and through which server."""

from __future__ import annotations

from warehouse.contract.settings import AnySetting, Setting

SMTP_HOST = Setting("mail", "smtp_host", "", "host name", "Empty: no mail is sent.")
SMTP_PORT = Setting("mail", "smtp_port", 587, "TCP port", "Submission with STARTTLS (RFC 6409).", 1, 65535)
SMTP_STARTTLS = Setting(
    "mail",
    "starttls",
    True,  # noqa: FBT003 - a setting's default
    "yes or no",
    "Reports name people: they do not travel in the clear. Turn it off for a relay on the same machine alone.",
)
SMTP_CA_FILE = Setting("mail", "ca_file", "", "path", "Who signed the server's certificate; empty: the system's own.")
SMTP_USER = Setting("mail", "user", "", "login", "Empty: the server asks for none.")
SMTP_PASSWORD_FILE = Setting("mail", "password_file", "", "path", "A file, for arguments and variables can be seen.")
SMTP_SECONDS = Setting(
    "mail", "timeout_seconds", 30.0, "seconds", "What a busy mail server takes; then the next run goes on.", 1.0, 600.0
)
SENDER = Setting("mail", "sender", "", "address", "From whom reports come.")
REPLY_TO = Setting("mail", "reply_to", "", "address", "Who answers questions and unsubscribes; empty: the sender.")
ADDRESS_TEMPLATE = Setting(
    "mail",
    "address_template",
    "",
    "template",
    "Makes addresses of logins, such as {user}@example.org, where identity.file names none; empty: no others.",
)
OPERATORS = Setting("mail", "operators", (), "addresses", "Who gets the report on the whole cluster.")
COPY_TO = Setting(
    "mail", "copy_to", (), "addresses", "Who gets a blind copy of every mail to users and leads, to know what was said."
)
AUDIENCES = Setting(
    "mail",
    "audiences",
    ("operator",),
    "audiences",
    "Of operator, lead and user: a site reads its own report for a while before it writes to people.",
)
FLOOR_GPU_HOURS = Setting(
    "mail",
    "floor_gpu_hours",
    10.0,
    "GPU-hours",
    "A user or lead whose advice would save less in the week is not written to: that is not worth a person's minute.",
    0.0,
    1e6,
)
EXCLUDE_USERS = Setting("mail", "exclude_users", (), "logins or patterns", "Who is never written to.")
EXCLUDE_ACCOUNTS = Setting(
    "mail", "exclude_accounts", (), "accounts or patterns", "Leads get no report on these accounts."
)
QUIET_DAYS = Setting(
    "mail", "quiet_days", 6.0, "days", "One mail a week to a person, even when a run comes a day early.", 0.0, 366.0
)
WORK_DAYS = Setting(
    "mail", "work_days", ("mon", "tue", "wed", "thu", "fri"), "days", "Mail of a weekend is read as none on Monday."
)
HOLIDAYS = Setting("mail", "holidays", (), "dates", "Days such as 2026-12-25 on which nothing is sent.")
SUBJECT = Setting(
    "mail", "subject", "GPU time in week {week}: {headline}", "template", "The subject says the one number of the week."
)
SETTINGS: tuple[AnySetting, ...] = (
    SMTP_HOST,
    SMTP_PORT,
    SMTP_STARTTLS,
    SMTP_CA_FILE,
    SMTP_USER,
    SMTP_PASSWORD_FILE,
    SMTP_SECONDS,
    SENDER,
    REPLY_TO,
    ADDRESS_TEMPLATE,
    OPERATORS,
    COPY_TO,
    AUDIENCES,
    FLOOR_GPU_HOURS,
    EXCLUDE_USERS,
    EXCLUDE_ACCOUNTS,
    QUIET_DAYS,
    WORK_DAYS,
    HOLIDAYS,
    SUBJECT,
)
