"""The runtimes of an encoder. They compute sentence vectors from token ids, with ONNX Runtime if possible, or torch."""
