"""Present results: tables, plots, the HTML report, and MTEB's files."""
