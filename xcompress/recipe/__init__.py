"""Recipes: YAML files that say what to distil from which models, on which text, in which stages."""

from xcompress.recipe.budgets import Budgets
from xcompress.recipe.encoders import (
    AssistantSection,
    EncoderSection,
    EnsembleMember,
    EnsembleSection,
    TeacherSection,
)
from xcompress.recipe.loading import load_recipe
from xcompress.recipe.schema import (
    AlignedGradedFiles,
    AugmentSection,
    CorpusSection,
    CorrelationSection,
    DevSection,
    LabelledSection,
    MonolingualSection,
    Recipe,
    StudentSection,
    TsvFile,
    VocabularySection,
)
from xcompress.recipe.stage import (
    GROUP,
    ON_LABELS,
    ON_SENTENCES,
    ON_TEACHER,
    ON_WORDS,
    ObjectiveName,
    PairKind,
    Stage,
    WordTask,
    kind_of,
)

__all__ = [
    "GROUP",
    "ON_LABELS",
    "ON_SENTENCES",
    "ON_TEACHER",
    "ON_WORDS",
    "AlignedGradedFiles",
    "AssistantSection",
    "AugmentSection",
    "Budgets",
    "CorpusSection",
    "CorrelationSection",
    "DevSection",
    "EncoderSection",
    "EnsembleMember",
    "EnsembleSection",
    "LabelledSection",
    "MonolingualSection",
    "ObjectiveName",
    "PairKind",
    "Recipe",
    "Stage",
    "StudentSection",
    "TeacherSection",
    "TsvFile",
    "VocabularySection",
    "WordTask",
    "kind_of",
    "load_recipe",
]
