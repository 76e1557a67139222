"""Results for people: tables, plots, the HTML report, and files that other tools read."""
