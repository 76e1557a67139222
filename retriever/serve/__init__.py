"""The HTTP server: an API to search collections, and a web page that uses it."""
