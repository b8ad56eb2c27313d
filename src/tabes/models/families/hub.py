"""Names of the hub: whether anybody answers to one, and if not, one sentence on what was tried and what to do."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tabes.errors import ModelError
from tabes.models import guard

__all__ = ["check_name"]


def check_name(name: str, revision: str | None) -> None:
    """Raise for what is neither a folder here nor a model of the hub that can be had."""
    if Path(name).is_dir():
        return
    try:
        with guard.explained(name):
            _fetch(name, revision)
    except ModelError as error:
        raise error from None  # what others raised fills a screen


def _fetch(name: str, revision: str | None) -> None:
    folder = "give the folder that holds its files"
    if not name.startswith("."):
        folder += f", such as ./{name.rpartition('/')[2] or 'checkpoint'}"
    try:
        hf_hub_download(name, "config.json", revision=revision)
    except HFValidationError:
        raise ModelError(f"'{name}' is no folder here and no name of the hub (owner/model): {folder}") from None
    except LocalEntryNotFoundError as error:
        why = guard.first_sentence(error.__cause__) if isinstance(error.__cause__, Exception) else "no connection"
        raise ModelError(
            f"{name} is no folder here, is not in the cache, and the hub cannot be asked ({why}): connect, or {folder}"
        ) from None
    except GatedRepoError:
        raise ModelError(
            f"{name} asks for its terms to be accepted, on its page and with a login (hf auth login)"
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(f"the hub has no model {name}, or only with a login (hf auth login): {folder}") from None
    except RevisionNotFoundError:
        raise ModelError(f"the hub has no revision '{revision}' of {name}") from None
    except EntryNotFoundError:
        raise ModelError(f"{name} has no config.json on the hub, so it is no checkpoint") from None
