"""The runtimes of an encoder, from token ids to sentence vectors: ONNX Runtime if possible, otherwise torch."""
