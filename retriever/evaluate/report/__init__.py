"""Results for people: tables, plots, the HTML report, and MTEB's files."""
