"""Collections for language models: the Model Context Protocol."""
