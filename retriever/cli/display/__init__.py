"""What the commands print: consoles, progress and tables, hits, and reports."""
