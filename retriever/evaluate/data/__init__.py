"""Reading and downloading the evaluation sets, TREC run files, and published figures."""
