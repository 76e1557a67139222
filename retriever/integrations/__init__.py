"""Integrations with other software, e.g. LangChain."""
