"""A tokenizer or a parser is asked for what it no longer has.

What         encode_plus, batch_encode_plus, max_len, encoder, additional_special_tokens and others
             left transformers' tokenizers in version 5; pad_to_max_length is accepted and ignored;
             save_vocabulary writes a file that from_pretrained of the same class does not read;
             tree_sitter no longer has Language(path, name), set_language and build_library.
At run time  AttributeError when the line is reached; with pad_to_max_length alone, examples of
             unequal length that no batch takes; TypeError at Language; ValueError where the folder
             of save_vocabulary is loaded again.
Example      tokenizer.encode_plus(a, b, max_length=n, pad_to_max_length=True)
Fix          The same thing by its name of today: the tokenizer is called, padding='max_length',
             truncation=True (which pad_to_max_length used to bring along; a batch without a length
             was padded to its longest text, and not cut), model_max_length. What has none is
             reported, such as build_inputs_with_special_tokens. A grammar is that of its package,
             as Language(tree_sitter_java.language()): pip install tree-sitter-java.
             save_vocabulary becomes save_pretrained, which writes the settings too.
Fix safety   Safe: the line could only raise before, and with a tree_sitter that takes a path it
             does what it did. Unsafe where pad_to_max_length stands in a call that still works:
             padding changes what one process computes.
Source       transformers.PreTrainedTokenizerBase; https://tree-sitter.github.io/py-tree-sitter/
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.vendored import any_has_own
from ..editing.edits import Define, Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module, cached_per_module
from ..source.tree import keyword, mentions, within

CODE, SEVERITY, SAFETY = "DF905", Severity.ERROR, Safety.SAFE

CALL_METHODS = ("encode_plus", "batch_encode_plus")
ITERATORS = ("zip", "map", "filter", "iter", "reversed")
RENAMED = {  # old name, and what a tokenizer has today
    "max_len": "model_max_length",
    "additional_special_tokens": "extra_special_tokens",
    "_convert_token_to_id": "convert_tokens_to_ids",
}
LOOKED_UP = {"encoder": "convert_tokens_to_ids", "decoder": "convert_ids_to_tokens"}
ADVICE = {  # old name, and what to use instead
    "as_target_tokenizer": "tokenizer(text_target=…)",
    "build_inputs_with_special_tokens": "cls and sep ids around the others, as the model has them",
    "create_token_type_ids_from_sequences": "0 for the first text, 1 for the second",
    "prepare_for_model": "tokenizer(…) on the text",
    "prepare_seq2seq_batch": "tokenizer(text, text_target=…)",
    "truncate_sequences": "a slice",
    "bpe_ranks": "tokenizer.backend_tokenizer.model",
    "byte_decoder": "tokenizer.convert_tokens_to_string(…)",
    "sanitize_special_tokens": "nothing: take the line out",
}
ATTRIBUTES = {*CALL_METHODS, *RENAMED, *LOOKED_UP, *ADVICE, "additional_special_tokens_ids"}
FOLDERS = {"save_directory", "vocab_path"}  # parameters of save_vocabulary, today and once
TOKEN_FUNCTIONS = {"convert_tokens_to_ids", "encode", "list", "split", "tokenize"}


def findings(program: Program) -> Iterator[Finding]:
    own_functions = {f.name for module in program.modules for f in module.nodes(ast.FunctionDef)}
    own = own_functions | {name for module in program.modules for name in attributes_of_own(module)}
    roots = {root for module in program.modules for root in module.imported_packages}
    is_library = "transformers" in roots and not any_has_own(program, "transformers")
    for module in program.modules:
        if is_library:
            yield from tokenizer_attributes(module, own)
            yield from ignored_padding(module)
            if "save_vocabulary" not in own_functions:
                yield from vocabulary_alone(module)
        if "tree_sitter" in roots:
            yield from tree_sitter_calls(module)


@cached_per_module
def attributes_of_own(module: Module) -> set[str]:
    """The attributes that classes of tokenizers set in the file: any object may be one of these."""
    return {
        name
        for name in ATTRIBUTES & module.attribute_values.keys()
        for value in module.attribute_values[name]
        for owner in [module.enclosing_class(value)]
        if owner is not None and "tokenizer" in owner.name.lower()
    }


def tokenizer_attributes(module: Module, own: set[str]) -> Iterator[Finding]:
    """Reads of attributes that tokenizers no longer have, and none of the program has either."""
    for node in module.attributes(*ATTRIBUTES - own):
        name = node.attr
        if not isinstance(node.ctx, ast.Load):
            continue
        if not is_tokenizer(module, node.value) or is_guarded(module, node):
            continue
        because = f"{module.text(node)} is gone"
        if name in ADVICE:
            because += f"; the way out: {ADVICE[name]}"
            yield Finding(module, node, because, severity=Severity.DEGRADED)
        else:
            edits = tuple(replacement_edits(module, node))
            severity = None if edits else Severity.DEGRADED
            because += "" if edits else "; a call takes texts, and these may be tokens"
            yield Finding(module, node, because, edits, severity=severity)


def is_tokenizer(module: Module, base: ast.expr) -> bool:
    return module.text(base).rpartition(".")[2].lower().endswith("tokenizer")


def vocabulary_alone(module: Module) -> Iterator[Finding]:
    """Vocabularies that are saved to a folder without the tokenizer's settings."""
    for call in module.calls_to("save_vocabulary"):
        function = call.func
        if not isinstance(function, ast.Attribute) or not is_tokenizer(module, function.value):
            continue
        folder = [*call.args, *(word.value for word in call.keywords if word.arg in FOLDERS)]
        words = [word for word in call.keywords if word.arg not in FOLDERS]
        if isinstance(module.parents[call], ast.Expr) and len(folder) == 1 and not words:
            base = module.text(function.value)
            code = f"{base}.save_pretrained({module.text(folder[0])})"
            because = f"{base}.from_pretrained finds no vocabulary there"
            yield Finding(module, call, because, (Rewrite(call, code),))


def is_guarded(module: Module, node: ast.AST) -> bool:
    """Whether the script handles the case that the attribute does not exist."""
    return any(
        isinstance(up, ast.Try)
        or (isinstance(up, ast.If | ast.IfExp) and mentions(up.test, "hasattr"))
        for up in module.ancestors(node)
    )


def replacement_edits(module: Module, node: ast.Attribute) -> Iterator[Edit]:
    """Edits that do the same with today's names; none where that is not certain."""
    base, name, parent = module.text(node.value), node.attr, module.parents[node]
    if name in RENAMED:
        yield Rewrite(node, f"{base}.{RENAMED[name]}")
    elif name in CALL_METHODS:
        if not isinstance(parent, ast.Call) or passes_tokens(module, parent):
            return
        yield Rewrite(node, base)
        if parent.args and is_iterator(module, parent.args[0]):
            yield Rewrite(parent.args[0], f"list({module.text(parent.args[0])})")
        for word in parent.keywords:
            if word.arg == "batch_text_or_text_pairs":
                text = module.text(word.value)
                text = f"list({text})" if is_iterator(module, word.value) else text
                yield Rewrite(word, f"text={text}")
            elif word.arg == "pad_to_max_length" and keyword(parent, "padding") is None:
                yield padding_edit(module, parent, word)
            elif word.arg == "truncation_strategy" and keyword(parent, "truncation") is None:
                yield Rewrite(word, f"truncation={module.text(word.value)}")
    elif name == "additional_special_tokens_ids":
        yield Rewrite(node, f"{base}.convert_tokens_to_ids({base}.extra_special_tokens)")
    elif isinstance(parent, ast.Subscript) and parent.value is node:
        yield Rewrite(parent, f"{base}.{LOOKED_UP[name]}({module.text(parent.slice)})")
    elif name == "encoder":
        yield Rewrite(node, f"{base}.get_vocab()")


def is_iterator(module: Module, texts: ast.expr) -> bool:
    """Whether texts come one by one, as from ``zip(a, b)``: a tokenizer takes lists."""
    return isinstance(texts, ast.GeneratorExp) or (
        isinstance(texts, ast.Call) and module.dotted(texts.func) in ITERATORS
    )


def passes_tokens(module: Module, call: ast.Call) -> bool:
    """Whether encode_plus may get tokens or their ids: today a list is a batch of texts."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr != "encode_plus":
        return False
    words = [keyword(call, name) for name in ("text", "text_pair")]
    texts = [*call.args[:2], *(word.value for word in words if word is not None)]
    return any(
        isinstance(value, ast.List | ast.ListComp)
        or (isinstance(value, ast.Subscript) and not is_text_by_key(value))
        or (isinstance(value, ast.Call) and module.last_name(value.func) in TOKEN_FUNCTIONS)
        for text in texts
        for value in (text, *module.alternatives(text, call))
    )


def is_text_by_key(value: ast.Subscript) -> bool:
    """``row["text"]``, and not ``row["tokens"]`` nor ``row["input_ids"]``."""
    key = value.slice.value if isinstance(value.slice, ast.Constant) else None
    return isinstance(key, str) and "tok" not in key.lower() and "ids" not in key.lower()


def padding_edit(module: Module, call: ast.Call, word: ast.keyword) -> Rewrite:
    """``padding`` and ``truncation`` in place of ``pad_to_max_length``, which implied both.

    Without a length it padded a batch to its longest text, and cut nothing.
    """
    flag = module.text(word.value)
    is_batch = isinstance(call.func, ast.Attribute) and call.func.attr == "batch_encode_plus"
    if is_batch and keyword(call, "max_length") is None:
        return Rewrite(word, f"padding={flag}")
    if flag == "True":
        code = "padding='max_length'"
    else:
        code = f"padding='max_length' if {flag} else False"
    if not (keyword(call, "truncation") or keyword(call, "truncation_strategy")):
        code += ", truncation=True"
    return Rewrite(word, code)


def ignored_padding(module: Module) -> Iterator[Finding]:
    """``pad_to_max_length`` in a call that still works, and ignores it."""
    for word in module.nodes(ast.keyword):
        call = module.parents[word]
        if word.arg != "pad_to_max_length" or not isinstance(call, ast.Call):
            continue
        if keyword(call, "padding") or module.text(word.value) == "False":
            continue
        owner = call.func
        if isinstance(owner, ast.Attribute) and owner.attr == "encode":
            owner = owner.value
        if is_tokenizer(module, owner):
            because = "pad_to_max_length is ignored"
            edit = padding_edit(module, call, word)
            yield Finding(module, word, because, (edit,), Safety.UNSAFE, Severity.DEGRADED)


def tree_sitter_calls(module: Module) -> Iterator[Finding]:
    """Uses of tree_sitter as it was before grammars became packages."""
    yield from language_calls(module)
    yield from set_language_calls(module)


def language_calls(module: Module) -> Iterator[Finding]:
    """``Language(path, name)`` and ``Language.build_library(…)``."""
    for call in module.calls_to("Language"):
        if is_in_helper(module, call) or len(call.args) != 2:
            continue
        if module.dotted(call.func) == "tree_sitter.Language":
            words = ", ".join(map(module.text, call.args))
            edits = (Rewrite(call, f"grammar_of({words})"), Define("grammar_of"))
            yield Finding(module, call, "Language takes no path: a grammar is a package", edits)
    for call in module.calls_to("build_library"):
        if module.dotted(call.func) == "tree_sitter.Language.build_library":
            because = "build_library is gone; the way out: pip install tree_sitter_java"
            yield Finding(module, call, because, severity=Severity.NOTE)


def set_language_calls(module: Module) -> Iterator[Finding]:
    """``parser.set_language(…)``."""
    parsers = {
        target.id
        for call in module.calls_to("Parser")
        for stmt in [module.statement(call)]
        if module.dotted(call.func) == "tree_sitter.Parser" and isinstance(stmt, ast.Assign)
        for target in within(stmt, ast.Name)
        if isinstance(target.ctx, ast.Store)
    }
    for call in module.calls_to("set_language"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if is_in_helper(module, call) or len(call.args) != 1:
            continue
        if isinstance(owner, ast.Name) and owner.id in parsers:
            words = f"{owner.id}, {module.text(call.args[0])}"
            edits = (Rewrite(call, f"use_grammar({words})"), Define("use_grammar"))
            yield Finding(module, call, "set_language is gone: it is an attribute", edits)


def is_in_helper(module: Module, call: ast.Call) -> bool:
    """Whether the call stands in a helper of a patched script, which handles both versions."""
    return getattr(module.function(call), "name", "") in ("grammar_of", "use_grammar")
