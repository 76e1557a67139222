"""Collections over HTTP: the API, the page, and what keeps both within limits."""
