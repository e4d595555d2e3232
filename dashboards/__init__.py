"""What people look at: pages, charts, tables and the weekly report. Percent, GiB, hours and money appear only here."""
