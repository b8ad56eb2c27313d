"""Conversations: lists of messages, and the text that a chat model was taught to read them as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard

from tabes.denoiser import Denoiser
from tabes.errors import UsageError

__all__ = ["Conversation", "Message", "chat", "is_conversation", "rendered"]

Message: TypeAlias = Mapping[str, str]
Conversation: TypeAlias = Sequence[Message]

_ROLES = ("system", "user", "assistant")


def chat(text: str, system: str | None = None) -> list[dict[str, str]]:
    """The conversation in which a user has said `text`: what a chat model wants as its prompt.

    It is a plain list of messages, so earlier turns can be put before it, or `{"role": "assistant", "content": ...}`
    behind it to begin the answer. `system` says beforehand how to answer.
    """
    turns = [("user", text)] if system is None else [("system", system), ("user", text)]
    messages = [{"role": role, "content": content} for role, content in turns]
    _check(messages)
    return messages


def is_conversation(prompt: object) -> TypeGuard[Conversation]:
    """Whether this is messages rather than texts; whether they are in order is seen when they are rendered."""
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def rendered(base: Denoiser, conversation: Conversation) -> str:
    """As the model's chat template writes it, special tokens and all. An assistant's last message is left open."""
    _check(conversation)
    template = _template(base)
    assert base.tokenizer is not None
    goes_on = conversation[-1]["role"] == "assistant"
    try:
        text = base.tokenizer.apply_chat_template(
            [dict(message) for message in conversation],
            chat_template=template,
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            tokenize=False,
        )
    # Templates raise what they like; jinja2 itself may be missing.
    except Exception as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(f"the chat template of {base.name} refuses these messages: {why[0].rstrip('.')}") from error
    return str(text)


def _template(base: Denoiser) -> str | None:
    """The card's, or None for the tokenizer's own, which goes first; neither if this is known to be a base model.

    Base models are published with their family's template too, which they were never taught to read.
    """
    card = base.card
    repository = card and card.repository(base.name)
    if card is not None and card.chats and repository and repository not in card.chats:
        raise UsageError(
            f"{base.name} is a base model, never taught to read a conversation: load {card.chats[0]} for that, or give "
            "a text for it to continue"
        )
    if getattr(base.tokenizer, "chat_template", None):
        return None
    if base.tokenizer is None or card is None or not card.template:
        what = "tokenizer" if base.tokenizer is None else "chat template"
        raise UsageError(f"{base.name} has no {what}, so it cannot read a conversation; give a text for it to continue")
    return card.template


def _check(conversation: Conversation) -> None:
    for index, message in enumerate(conversation):
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise UsageError(f"message {index} is {message!r:.80}; it must have a role and a content")
        if message["role"] not in _ROLES:
            raise UsageError(f"message {index} has the role {message['role']!r}; roles are {', '.join(_ROLES)}")
        if not isinstance(message["content"], str):
            raise UsageError(f"message {index} has the content {message['content']!r:.80}; it must be a text")
