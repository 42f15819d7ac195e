"""Names of severities in each format, by the letter of `findings.Severity`."""

LEVELS = {"E": "error", "W": "warning", "N": "note"}
NAMES = {"E": "error", "W": "degraded", "N": "note"}
GITHUB_LEVELS = LEVELS | {"N": "notice"}
