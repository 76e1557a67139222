"""Other software: LangChain, notebooks, sentence-transformers."""
