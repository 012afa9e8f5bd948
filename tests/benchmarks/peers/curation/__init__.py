"""What others use to curate text, one module a tool and task, beside ours under the same conditions."""
