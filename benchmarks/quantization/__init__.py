"""What an index of few bytes keeps of exact search, before and after a transform."""
