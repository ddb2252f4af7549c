"""Texts that tokenizers trip over."""

ODD = [
    "",
    " ",
    "  two  spaces \t and a tab\n",
    "caf\u00e9 cafe\u0301 \ufb01ne \u00bd \uff41\uff42\uff43 \u2167",
    "\u0391\u03a3 \u039f\u0394\u039f\u03a3 \u0130stanbul Stra\u00dfe",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "<s> a <mask> b</s> [CLS] x [MASK]y",
    "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627",
    "\u65e5\u672c\u8a9e\u3002\ud55c\uad6d\uc5b4 \u0939\u093f\u0928\u094d\u0926\u0940",
    "don't I'll 12.5% $5+3=8 `~|",
    "a\u200bb\u00adc \u00a0 nbsp\u3000wide",
    "x" * 300,
    "the boat " * 200,
    "\u2581\u2581 \u2581a",
]
