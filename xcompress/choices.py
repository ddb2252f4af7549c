"""The words that options are given in; a module of its own, as the command line reads it without what is heavy."""

from typing import Literal

Precision = Literal["fp32", "fp16", "int8", "int4", "auto"]
Table = Literal["auto", "int8", "int4"]
Target = Literal["cpu", "mobile", "wasm"]
Recurrence = Literal["unroll", "loop"]
Bottleneck = Literal["auto", "keep", "fold"]
Shortening = Literal["pca", "slice"]
Format = Literal["onnx", "hf"]
