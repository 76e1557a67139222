"""Terminal output of the commands: consoles, progress bars, tables, hits and reports."""
