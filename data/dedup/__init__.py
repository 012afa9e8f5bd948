"""Which documents repeat others: exactly, nearly, or line by line."""
