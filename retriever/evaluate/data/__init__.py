"""The evaluation sets: reading them and fetching them from the Hugging Face hub."""
