"""A bundle in a real browser: headless Chromium with onnxruntime-web, one thread and SIMD, served on loopback."""

from xcompress.bench.workers.browser.parity import parity
from xcompress.bench.workers.browser.tools import Tools, check_browser
from xcompress.bench.workers.browser.worker import BrowserWorker, emulated

__all__ = ["BrowserWorker", "Tools", "check_browser", "emulated", "parity"]
