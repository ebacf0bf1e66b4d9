"""A model to a file and back, checkpoints, ONNX."""
