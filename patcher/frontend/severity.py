"""Names of severities, by the letter of `findings.Severity`: the same in every format but one."""

NAMES = {"E": "error", "W": "warning", "N": "note"}
GITHUB_LEVELS = NAMES | {"N": "notice"}  # as its workflow commands call them
