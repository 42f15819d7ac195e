"""Text in, findings and new text out. Never runs the user's code, never imports torch."""
