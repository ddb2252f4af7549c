"""The name that student folders written before 0.2 have in modules.json; the class lives in xcompress.interop."""

from xcompress.interop.sentence_transformers import StudentModule as StudentModule
from xcompress.interop.sentence_transformers import StudentTransformer as StudentTransformer
