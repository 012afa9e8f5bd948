"""Which documents are worth training on: by rules, a trained classifier, an n-gram model."""
