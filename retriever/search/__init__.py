"""The query path: meaning, words, fusion of both, facets and excerpts."""
