"""Scripts that just fail, or just pass, a condition of a rule: what they are tested against."""
