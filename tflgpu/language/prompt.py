"""How a prompt is written for a model: with the text that its file puts around what a user says."""

from __future__ import annotations

from typing import NoReturn

from tflgpu.errors import ModelError
from tflgpu.language.language_metadata import LanguageMetadata


def written_prompt(metadata: LanguageMetadata, prompt: str) -> str:
    """The prompt as a user's part of a conversation, up to where the model's answer begins.

    A file's affixes come before its template of Jinja; without both the prompt is what it is.

    Raises ModelError for a template that fails.
    """
    user, model = metadata.user, metadata.model
    around = user.prefix, user.suffix, model.prefix
    if any(around) or not metadata.jinja_template:
        return f"{user.prefix}{prompt}{user.suffix}{model.prefix}"
    return _rendered(metadata.jinja_template, prompt)


def _rendered(template: str, prompt: str) -> str:
    """What a file's own template makes of the prompt. It may compute, but reach nothing of this process."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason: object) -> NoReturn:
        raise TemplateError(str(reason))

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": "user", "content": prompt}]
    try:
        return environment.from_string(template).render(
            messages=messages,
            add_generation_prompt=True,
            bos_token="",  # the start token comes before the text, as a token
            eos_token="",
            raise_exception=refuse,
        )
    except Exception as error:  # templates are programs, which fail in any way
        raise ModelError(f"the file's prompt template fails: {error}") from error
