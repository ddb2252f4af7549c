"""What every part of a recipe is."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """What all parts of a recipe share: unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
