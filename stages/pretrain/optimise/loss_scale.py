"""The dynamic loss scale of fp16 as a value: what it is after a step follows from what it was and from that step.

Gradients below 6e-8 vanish in fp16, so the loss is multiplied by a power of two before the backward pass and gradients
are divided by it again. The scale falls as soon as a gradient overflows and rises after many steps without
(Micikevicius et al., 2018, "Mixed Precision Training", section 3.2).
"""

from pydantic import BaseModel, ConfigDict, Field

FIRST, GREATEST, LEAST = 2.0**16, 2.0**24, 2.0**-4
GROWTH, BACK_OFF, GROWTH_STEPS = 2.0, 0.5, 2000


class LossScale(BaseModel):
    """What losses are multiplied by, and how many steps in a row have not overflowed since it last changed. Below LEAST
    it is no longer the scale that makes gradients overflow: the model diverges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale: float = Field(FIRST, gt=0)
    clean_steps: int = Field(0, ge=0)

    def after(self, *, overflow: bool) -> "LossScale":
        """The loss scale after a step whose gradient was not finite (`overflow`), or was."""
        if overflow:
            return LossScale(scale=self.scale * BACK_OFF, clean_steps=0)
        if self.clean_steps + 1 < GROWTH_STEPS or self.scale >= GREATEST:
            return LossScale(scale=self.scale, clean_steps=self.clean_steps + 1)
        return LossScale(scale=self.scale * GROWTH, clean_steps=0)
