"""The class path in modules.json of student folders; the classes are in `xcompress.interop.sentence_transformers`.

Students on disk name `xcompress.st_module.StudentModule`, so this path stays. Students that sentence-transformers saved
name `xcompress.interop.sentence_transformers.StudentTransformer`.
"""

from xcompress.interop.sentence_transformers import StudentModule as StudentModule
from xcompress.interop.sentence_transformers import StudentTransformer as StudentTransformer
