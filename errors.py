"""The exception whose message is printed for the user, and what a missing package asks for."""

PACKAGES = {
    "train": {"accelerate", "numpy", "peft", "sklearn", "tokenizers", "torch", "transformers"},
    "report": {"jinja2", "plotly"},
    "lsp": {"lsprotocol", "pygls"},
    "shell": {"tree_sitter", "tree_sitter_bash"},
}
"""The packages of each extra, by the names that they are imported by."""


class InputError(Exception):
    """Input that cannot be used: the command line prints it on one line and exits with 2.

    The message names the file, the line where there is one, and what to do.
    """


def missing_package(module: str | None) -> str | None:
    """What to do where a module of an extra is not installed; None where it is of none."""
    top = (module or "").partition(".")[0]
    for extra, packages in PACKAGES.items():
        if top in packages:
            return f"{top} is not installed here: pip install 'ddpfix[{extra}]'"
    return None
