"""The routes of the server: the API, the map, embeddings for OpenAI's clients, and the reference of the API."""
