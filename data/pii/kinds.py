"""The kinds of personal data that can be looked for, and which of them are by default: light, for configurations."""

from enum import StrEnum


class PiiKind(StrEnum):
    """Where matches of two kinds overlap, the one that stands first here wins."""

    SECRET = "secret"
    EMAIL = "email"
    IBAN = "iban"
    CARD = "card"
    IP = "ip"
    PHONE = "phone"

    @property
    def placeholder(self) -> str:
        return f"<{self.name}>"


# What documentation and code seldom hold as an example. In 43 MB of them (the documentation of Python and PostgreSQL,
# the standard library, what packages carry) 396 e-mail addresses are nearly all of people and one card is a random
# seed; but of 31 public IP addresses and 17 telephone numbers all but two are examples, which would be damaged.
DEFAULT_KINDS = (PiiKind.SECRET, PiiKind.EMAIL, PiiKind.IBAN, PiiKind.CARD)
