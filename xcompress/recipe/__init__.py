"""A recipe: one YAML file that says what is distilled from what, on which text, in which stages."""

from xcompress.recipe.encoders import Assistant, Encoder, OneTeacher, Teacher
from xcompress.recipe.loading import load_recipe
from xcompress.recipe.schema import (
    ON_LABELS,
    ON_TEACHER,
    ON_WORDS,
    Augment,
    Budgets,
    CorpusPart,
    Dev,
    LabelledPart,
    ObjectiveName,
    Recipe,
    Stage,
    StudentPart,
    Tsv,
    VocabularyPart,
    WordTask,
)

__all__ = [
    "ON_LABELS",
    "ON_TEACHER",
    "ON_WORDS",
    "Assistant",
    "Augment",
    "Budgets",
    "CorpusPart",
    "Dev",
    "Encoder",
    "LabelledPart",
    "ObjectiveName",
    "OneTeacher",
    "Recipe",
    "Stage",
    "StudentPart",
    "Teacher",
    "Tsv",
    "VocabularyPart",
    "WordTask",
    "load_recipe",
]
