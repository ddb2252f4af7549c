"""Recipes: YAML files that say what to distil from which models, on which text, in which stages."""

from xcompress.recipe.budgets import Budgets
from xcompress.recipe.encoders import EncoderSection, EnsembleMember, EnsembleSection, TeacherSection
from xcompress.recipe.loading import load_recipe, read_budgets
from xcompress.recipe.schema import AlignedGradedFiles, AugmentSection, MonolingualSection, Recipe, StudentSection
from xcompress.recipe.stage import GROUP, ON_LABELS, ON_WORDS, ObjectiveName, PairKind, Stage, WordTask, kind_of

__all__ = [
    "GROUP",
    "ON_LABELS",
    "ON_WORDS",
    "AlignedGradedFiles",
    "AugmentSection",
    "Budgets",
    "EncoderSection",
    "EnsembleMember",
    "EnsembleSection",
    "MonolingualSection",
    "ObjectiveName",
    "PairKind",
    "Recipe",
    "Stage",
    "StudentSection",
    "TeacherSection",
    "WordTask",
    "kind_of",
    "load_recipe",
    "read_budgets",
]
