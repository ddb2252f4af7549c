"""A bundle in a real browser: headless Chromium with onnxruntime-web, one thread and SIMD, served on loopback."""

from xcompress.bench.workers.browser.tools import Tools, check_browser
from xcompress.bench.workers.browser.worker import SLOW_DOWN, Adapter, BrowserWorker, find_adapter

__all__ = ["SLOW_DOWN", "Adapter", "BrowserWorker", "Tools", "check_browser", "find_adapter"]
