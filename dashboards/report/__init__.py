"""The weekly report: one document in, HTML or Markdown out."""
