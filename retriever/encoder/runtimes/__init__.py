"""What runs an encoder: token ids in, sentence vectors out. ONNX Runtime where it can, torch for the rest."""
