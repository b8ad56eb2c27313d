"""Networks that can be decoded: how they are loaded and what they must be able to do."""

from tabes.models.cards import Card, card_named, card_of, cards
from tabes.models.network import Network, Work

__all__ = ["Card", "Network", "Work", "card_named", "card_of", "cards"]
