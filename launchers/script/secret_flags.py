"""Tell flags and environment variables whose values are secrets, and mask those values.

A name is split into words: ``--tokenizer_name`` holds no word ``token``. What follows or precedes
the word, and the value, tell ``--hf_token`` from ``--pad_token`` and ``--token_limit 4096``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MASK = "***"
LONG_NUMBER = 8  # digits that an API key may consist of, and no count
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = {"password", "passwords", "passwd", "passphrase", "pwd"}
_SECRET = {"secret", "secrets", "credential", "credentials", "apikey", "apikeys", "authtoken"}
_LAST = {"token", "key"}
_LAST_OF_SEVERAL = {"tokens", "keys"}  # counts of tokens, names of columns
_QUALIFIED = {"api", "access", "auth", "private", "hub", "hf", "wandb", "bearer"}
# --pad_token, --text_key, --sort_key: names of tokens and of columns
_ORDINARY = {
    *("pad", "eos", "bos", "unk", "cls", "sep", "mask", "start", "end", "stop", "begin", "special"),
    *("image", "text", "label", "target", "source", "src", "tgt", "input", "output", "prompt"),
    *("query", "data", "dataset", "column", "sort", "feature", "score", "metric", "new", "next"),
    *("first", "last", "per", "max", "min", "num", "decoder", "encoder", "json", "id", "primary"),
}  # fmt: skip
_NO_SECRET = re.compile(r"[+-]?[\d._]+(e[+-]?\d+)?|true|false|none|null|yes|no|<.*>|\[.*\]", re.I)
_PLACES = {"file", "path", "dir", "folder", "env", "var", "variable"}  # where the secret is


def is_secret(name: str, value: str | None) -> bool:
    """Whether a flag or variable of this name, with this value, holds a secret."""
    if not value or value == MASK:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _PLACES:
        return False
    if _ALWAYS & {*words}:
        return True
    qualified = bool(_QUALIFIED & {*words})
    if _NO_SECRET.fullmatch(value) and not (qualified and len(value) >= LONG_NUMBER):
        return False
    if _SECRET & {*words}:
        return True
    if words[-1] == "value":
        words.pop()
    *before, last = words
    if last in _LAST_OF_SEVERAL:
        return qualified
    return last in _LAST and not (before and before[-1] in _ORDINARY)


def secret_values(words: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Each secret in a command line: the index of its word, its flag, and the secret itself."""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not flag.startswith("-") or not flag.strip("-"):
            continue
        if equals:
            if is_secret(flag, value):
                yield index, flag, value
            continue
        following = words[index + 1] if index + 1 < len(words) else ""
        if not following.startswith("--") and is_secret(flag, following):
            yield index + 1, flag, following


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line with a mask in the place of each secret."""
    result = list(words)
    for index, flag, _ in secret_values(words):
        result[index] = f"{flag}={MASK}" if words[index].startswith(f"{flag}=") else MASK
    return result


def masked_variables(variables: dict[str, str]) -> dict[str, str]:
    """Environment variables with a mask in the place of each secret."""
    return {name: MASK if is_secret(name, value) else value for name, value in variables.items()}
