"""What a recipe says about the forms in which a model ships (`[export]`)."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from stages.config import StageConfig, runtime


class Form(StrEnum):
    """A form of the exported model."""

    HF = "hf"
    GGUF_F32 = "gguf-f32"
    GGUF_Q4_0 = "gguf-q4_0"

    @property
    def path(self) -> str:
        """Where the form lies in the artifact: a folder, or a file."""
        return {Form.HF: "hf", Form.GGUF_F32: "gguf/model-f32.gguf", Form.GGUF_Q4_0: "gguf/model-q4_0.gguf"}[self]


class ExportConfig(StageConfig):
    """Which forms to ship, and what each must keep of the model's quality."""

    forms: tuple[Form, ...] = Field(
        (Form.HF, Form.GGUF_F32, Form.GGUF_Q4_0), min_length=1, description="Forms to write"
    )
    hf_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the weights in the Hugging Face form"
    )
    max_bits_per_byte_increase: float = Field(
        0.05, ge=0, description="A form whose bits per byte rise by more than this share, on any domain, is not shipped"
    )
    domain_bytes: int = Field(
        40_000, ge=1, description="Held-out text to measure each form on, in each domain, in UTF-8 bytes"
    )
    prompts: tuple[str, ...] = Field(
        ('def parse(text):\n    """', "Return the ", "import ", "class Node"),
        min_length=1,
        description="What the samples continue",
    )
    sample_tokens: int = Field(80, ge=1, description="Tokens of each sample")
    temperature: float = Field(0.8, gt=0, description="Of the sampled continuations")
    greedy_tokens: int = Field(
        32, ge=1, description="Tokens, for each prompt, in which a GGUF file is compared with transformers"
    )
    seed: int = Field(0, ge=0, description="Of the samples and of the choice of held-out documents")

    threads: int = runtime(2, rounding=True, ge=1, description="CPU threads")
    batch_tokens: int = runtime(2048, rounding=True, ge=1, description="Most tokens of one forward pass")
    server_seconds: float = runtime(
        120.0, gt=0, description="Time that llama.cpp has to load a file and to answer all prompts"
    )
