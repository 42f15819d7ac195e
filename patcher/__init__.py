"""Text in, findings and new text out. Never runs or imports the user's code, never imports torch."""
