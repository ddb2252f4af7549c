"""From a PyTorch encoder to a verified ONNX bundle."""
