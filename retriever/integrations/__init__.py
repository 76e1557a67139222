"""Integrations with other software: LangChain, LlamaIndex, Haystack."""
