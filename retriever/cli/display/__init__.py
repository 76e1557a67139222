"""Terminal output of the commands: consoles, progress bars, tables, hits, reports and the messages of errors."""
