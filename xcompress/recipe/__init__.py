"""A recipe: one YAML file that says what is distilled from what, on which text, in which stages."""

from xcompress.recipe.budgets import Budgets
from xcompress.recipe.loading import load_recipe
from xcompress.recipe.schema import (
    Assistant,
    Dev,
    Encoder,
    ObjectiveName,
    Recipe,
    Stage,
    StudentPart,
    Teacher,
    VocabularyPart,
)

__all__ = [
    "Assistant",
    "Budgets",
    "Dev",
    "Encoder",
    "ObjectiveName",
    "Recipe",
    "Stage",
    "StudentPart",
    "Teacher",
    "VocabularyPart",
    "load_recipe",
]
