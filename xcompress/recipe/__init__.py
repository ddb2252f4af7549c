"""A recipe: one YAML file that says what is distilled from what, on which text, in which stages."""

from xcompress.recipe.encoders import Assistant, Encoder, OneTeacher, Teacher
from xcompress.recipe.loading import load_recipe
from xcompress.recipe.schema import (
    ON_LABELS,
    ON_TEACHER,
    ON_WORDS,
    Augment,
    Budgets,
    CorpusSection,
    Dev,
    LabelledSection,
    ObjectiveName,
    Recipe,
    Stage,
    StudentSection,
    Tsv,
    VocabularySection,
    WordTask,
)

__all__ = [
    "ON_LABELS",
    "ON_TEACHER",
    "ON_WORDS",
    "Assistant",
    "Augment",
    "Budgets",
    "CorpusSection",
    "Dev",
    "Encoder",
    "LabelledSection",
    "ObjectiveName",
    "OneTeacher",
    "Recipe",
    "Stage",
    "StudentSection",
    "Teacher",
    "Tsv",
    "VocabularySection",
    "WordTask",
    "load_recipe",
]
