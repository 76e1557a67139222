"""How good a collection and an encoder are: retrieval, question answering, sentence similarity, isotropy."""
