"""Turn a student or an encoder into a self-contained, verified ONNX bundle."""
