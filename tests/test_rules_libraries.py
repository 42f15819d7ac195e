"""DF901, DF902 and DF905: what today's transformers and tree_sitter no longer have."""

from __future__ import annotations

import importlib
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
from cases import changes, fixed, found
from ddpfix.patcher.rules import df901_names_gone_from_transformers as df901
from ddpfix.patcher.rules import df905_tokenizer_calls_gone as df905

NOOP = [
    ("DF901", "tried, with another way", """
        try:
            from transformers import AdamW
        except ImportError:
            from torch.optim import AdamW
        """),
    ("DF901", "a test of the version", """
        if version < 5:
            from transformers import AutoModelWithLMHead
        """),
    ("DF901", "modules that stayed", """
        from transformers.modeling_utils import PreTrainedModel
        from transformers.tokenization_utils import PreTrainedTokenizer
        from transformers.file_utils import WEIGHTS_NAME
        from transformers.models.roberta.modeling_roberta import RobertaModel
        """),
    ("DF901", "a module of the script's own", "from modeling_bert import BertLayerNorm"),
    ("DF901", "a checkout of the older library", """
        from transformers.pytorch_transformers.modeling_bert import (
            BertConfig, BERT_PRETRAINED_MODEL_ARCHIVE_MAP)
        BERT_PRETRAINED_MODEL_ARCHIVE_MAP[name]
        """),
    ("DF902", "asked with a way out", """
        import transformers
        x = getattr(config, 'torchscript', False)
        """),
    ("DF902", "a mask of tokens, and one of four dimensions", """
        import transformers
        a = encoder(ids, attention_mask=ids.ne(1))
        bias = (1.0 - mask[:, None, :, :]) * -10000.0
        b = encoder(ids, attention_mask=bias)
        c = encoder(ids, attention_mask=mask)
        d = encoder(ids, attention_mask=mask.unsqueeze(1) * other.unsqueeze(1))
        """),
    ("DF902", "a model of the script's own", """
        import transformers
        class Model:
            def forward(self, ids, attention_mask=None, past_key_values=None, past=None):
                return ids
        model(ids, attention_mask=bias[:, :n, :n], past_key_values=[1], past=[2])
        """),
    ("DF902", "the cache that a model gave", """
        import transformers
        cache = out.past_key_values
        model(ids, past_key_values=cache)
        """),
    ("DF905", "names that stayed", """
        import transformers
        n = min(n, tokenizer.max_len_single_sentence)
        ids = tokenizer(text, padding='max_length', truncation=True)['input_ids']
        special = {'additional_special_tokens': names}
        """),
    ("DF905", "the same words of other things", """
        import transformers
        model.encoder(x, self.max_len, self.encoder[0], decoder.decoder)
        """),
    ("DF905", "asked whether it is there", """
        import transformers
        n = tokenizer.max_len if hasattr(tokenizer, 'max_len') else tokenizer.model_max_length
        """),
    ("DF905", "a tokenizer of the script's own", """
        import transformers
        class Tokenizer:
            def encode_plus(self, text):
                return text
        tokenizer.encode_plus(text)
        """),
    ("DF905", "a vocabulary of the script's own tokenizer", """
        import transformers
        class SimpleTokenizer:
            def __init__(self, words):
                self.encoder = {word: place for place, word in enumerate(words)}
        tokenizer = SimpleTokenizer(words)
        end = tokenizer.encoder["<end>"]
        """),
    ("DF905", "no transformers", "tokenizer.encode_plus(text)"),
    ("DF905", "the path of a vocabulary, which is used, and a file's prefix", """
        import transformers
        path, = tokenizer.save_vocabulary(folder)
        tokenizer.save_vocabulary(folder, filename_prefix="old")
        """),
    ("DF905", "a vocabulary that the script writes in its own way", """
        import transformers
        class Tokenizer:
            def save_vocabulary(self, folder):
                pass
        tokenizer.save_vocabulary(folder)
        """),
    ("DF905", "a grammar as it comes today", """
        import tree_sitter_java
        from tree_sitter import Language, Parser
        parser = Parser()
        parser.language = Language(tree_sitter_java.language())
        """),
    ("DF902", "no model of transformers", "encoder(ids, attention_mask=bias[:, :n, :n])"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_names_that_libraries_still_have_are_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF901", "a name that nothing uses, among others", """
        from transformers import GlueDataset, AutoModel
        AutoModel.from_pretrained(x)
        """, """
        @@ -1,2 +1,2 @@
        -from transformers import GlueDataset, AutoModel
        +from transformers import AutoModel
         AutoModel.from_pretrained(x)
        """),
    ("DF902", "past= under its name of today, where a cache is passed on", """
        import transformers
        out = model(ids, past=cache)
        """, """
        @@ -1,2 +1,2 @@
         import transformers
        -out = model(ids, past=cache)
        +out = model(ids, past_key_values=cache)
        """),
    ("DF902", "past= with tensors of the script's own", """
        import transformers
        kept = [x.data.index_select(1, beam) for x in past]
        out = model(ids, past=kept)
        """, """
        @@ -1,3 +1,4 @@
         import transformers
        +from transformers import DynamicCache
         kept = [x.data.index_select(1, beam) for x in past]
        -out = model(ids, past=kept)
        +out = model(ids, past_key_values=DynamicCache(kept))
        """),
    ("DF902", "a layer of a cache has a third part", """
        import transformers
        whole = model(ids).past_key_values
        kept = tuple(tuple(x[:1] for x in layer) for layer in whole)
        """, """
        @@ -2,2 +2,2 @@
         whole = model(ids).past_key_values
        -kept = tuple(tuple(x[:1] for x in layer) for layer in whole)
        +kept = tuple(tuple(x[:1] for x in layer[:2]) for layer in whole)
        """),
    ("DF901", "two names side by side and one apart", """
        from transformers import (BertModel, AdamW, TruncationStrategy,
                                  BertConfig, PaddingStrategy)
        """, """
        @@ -1,2 +1,4 @@
        -from transformers import (BertModel, AdamW, TruncationStrategy,
        -                          BertConfig, PaddingStrategy)
        +from transformers import (BertModel, BertConfig)
        +from torch.optim import AdamW
        +from transformers.tokenization_utils_base import TruncationStrategy
        +from transformers.utils import PaddingStrategy
        """),
    ("DF901", "a layer norm under its old name",
        "import torch\nfrom transformers.modeling_bert import BertLayerNorm", """
        @@ -1,2 +1,2 @@
         import torch
        -from transformers.modeling_bert import BertLayerNorm
        +from torch.nn import LayerNorm as BertLayerNorm
        """),
    ("DF901", "one model's module",
        "from transformers.modeling_roberta import RobertaLMHead as H", """
        @@ -1 +1 @@
        -from transformers.modeling_roberta import RobertaLMHead as H
        +from transformers.models.roberta.modeling_roberta import RobertaLMHead as H
        """),
    ("DF905", "a call in the place of encode_plus, padded as it was", """
        import transformers
        x = tokenizer.encode_plus(a, b, max_length=9, pad_to_max_length=True)
        y = self.tokenizer.batch_encode_plus(batch_text_or_text_pairs=texts, truncation=True,
                                             pad_to_max_length=args.pad)
        """, """
        @@ -1,4 +1,4 @@
         import transformers
        -x = tokenizer.encode_plus(a, b, max_length=9, pad_to_max_length=True)
        -y = self.tokenizer.batch_encode_plus(batch_text_or_text_pairs=texts, truncation=True,
        -                                     pad_to_max_length=args.pad)
        +x = tokenizer(a, b, max_length=9, padding='max_length', truncation=True)
        +y = self.tokenizer(text=texts, truncation=True,
        +                                     padding=args.pad)
        """),
    ("DF905", "a text by its key, and tokens by theirs", """
        import transformers
        x = tokenizer.encode_plus(row["text"])
        y = tokenizer.encode_plus(row["tokens"])
        """, """
        @@ -1,3 +1,3 @@
         import transformers
        -x = tokenizer.encode_plus(row["text"])
        +x = tokenizer(row["text"])
         y = tokenizer.encode_plus(row["tokens"])
        """),
    ("DF905", "padding that a call asks for twice", """
        import transformers
        x = tokenizer.encode_plus(a, max_length=9, pad_to_max_length=True, padding='max_length')
        """, """
        @@ -1,2 +1,2 @@
         import transformers
        -x = tokenizer.encode_plus(a, max_length=9, pad_to_max_length=True, padding='max_length')
        +x = tokenizer(a, max_length=9, pad_to_max_length=True, padding='max_length')
        """),
    ("DF905", "pairs one by one, cut as the call says", """
        import transformers
        x = tokenizer.batch_encode_plus(zip(a, b), max_length=9, truncation_strategy='only_first',
                                        pad_to_max_length=True)
        """, """
        @@ -1,3 +1,3 @@
         import transformers
        -x = tokenizer.batch_encode_plus(zip(a, b), max_length=9, truncation_strategy='only_first',
        -                                pad_to_max_length=True)
        +x = tokenizer(list(zip(a, b)), max_length=9, truncation='only_first',
        +                                padding='max_length')
        """),
    ("DF905", "a vocabulary is saved with what it takes to load it", """
        import transformers
        tokenizer.save_vocabulary(folder)
        self.tokenizer.save_vocabulary(save_directory=os.path.join(folder, "last"))
        """, """
        @@ -1,3 +1,3 @@
         import transformers
        -tokenizer.save_vocabulary(folder)
        -self.tokenizer.save_vocabulary(save_directory=os.path.join(folder, "last"))
        +tokenizer.save_pretrained(folder)
        +self.tokenizer.save_pretrained(os.path.join(folder, "last"))
        """),
    ("DF905", "padding that was ignored", """
        import transformers
        x = tokenizer.encode(a, max_length=9, pad_to_max_length=True)
        """, """
        @@ -1,2 +1,2 @@
         import transformers
        -x = tokenizer.encode(a, max_length=9, pad_to_max_length=True)
        +x = tokenizer.encode(a, max_length=9, padding='max_length', truncation=True)
        """),
    ("DF905", "other names of the same", """
        import transformers
        n = tokenizer.max_len
        a, b = tokenizer.additional_special_tokens, tokenizer.additional_special_tokens_ids
        w = {tokenizer.encoder[word]: tokenizer.decoder[7] for word in words}
        v = len(tokenizer.encoder), tokenizer._convert_token_to_id('x')
        """, """
        @@ -1,5 +1,5 @@
         import transformers
        -n = tokenizer.max_len
        -a, b = tokenizer.additional_special_tokens, tokenizer.additional_special_tokens_ids
        -w = {tokenizer.encoder[word]: tokenizer.decoder[7] for word in words}
        -v = len(tokenizer.encoder), tokenizer._convert_token_to_id('x')
        +n = tokenizer.model_max_length
        +a, b = tokenizer.extra_special_tokens, tokenizer.convert_tokens_to_ids(tokenizer.extra_special_tokens)
        +w = {tokenizer.convert_tokens_to_ids(word): tokenizer.convert_ids_to_tokens(7) for word in words}
        +v = len(tokenizer.get_vocab()), tokenizer.convert_tokens_to_ids('x')
        """),  # noqa: E501
    ("DF901", "a class asked of the package",
        "import torch\nimport transformers\nopt = transformers.AdamW(p, lr=1)", """
        @@ -2,2 +2,2 @@
         import transformers
        -opt = transformers.AdamW(p, lr=1)
        +opt = torch.optim.AdamW(p, lr=1, eps=1e-6, weight_decay=0.0)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_each_name_of_a_library_is_replaced_exactly_like_this(
    code: str, text: str, diff: str
) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert [f for f in found(code, new) if f.edits] == []


REPORTED = [
    ("DF901", "a name that has no equal, and is used", "E", """
        from transformers import GlueDataset
        data = GlueDataset(args)
        """),
    ("DF901", "a name that the module's list of names has", "E", """
        from transformers import GlueDataset
        __all__ = ["GlueDataset"]
        """),
    ("DF902", "a mask of four dimensions that is no bias", "N", """
        import transformers
        mask = ids.ne(1)[:, None, None, :].float()
        x = encoder(ids, attention_mask=mask)
        """),
    ("DF905", "a list of tokens, which is a batch of texts today", "W", """
        import transformers
        tokens = tokenizer.tokenize(text)
        x = tokenizer.encode_plus(tokens, max_length=9)
        """),
    ("DF905", "what every tokenizer does in its own way", "W",
        "import transformers\nx = tokenizer.build_inputs_with_special_tokens(ids)"),
    ("DF905", "a library of grammars", "N",
        "from tree_sitter import Language\nLanguage.build_library('my-languages.so', ['java'])"),
    ("DF901", "a choice by the checkpoint", "E",
        "from transformers import AutoModelWithLMHead, AdamW\nAutoModelWithLMHead(x)"),
    ("DF901", "an entry of a list of names on the hub", "E",
        "from transformers.modeling_bert import BERT_PRETRAINED_MODEL_ARCHIVE_LIST as A\nA[0]"),
    ("DF901", "a schedule's class that is chosen by name", "E",
        "from transformers import WarmupLinearSchedule as L\nKINDS = {'linear': L}"),
    ("DF901", "only where a function is called", "W", """
        def glue():
            from transformers import glue_processors
            return glue_processors
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "severity", "text"),
    [pytest.param(c, s, t, id=f"{c} {name}") for c, name, s, t in REPORTED],
)
def test_names_without_a_successor_are_reported_and_not_touched(
    code: str, severity: str, text: str
) -> None:
    findings = found(code, text)
    assert [finding.severity and finding.severity.value for finding in findings] == [severity]
    assert not any(finding.edits for finding in findings)


def moved() -> list[tuple[str, str]]:
    """Each name of DF901's tables, as it was imported and as it is today."""
    flat = [
        f"transformers.{kind}_{model}.{df901.PREFIXES[model]}{name}"
        for model, names in df901.MODEL_CLASSES.items()
        for name in names.split()
        for kind in [
            "configuration" if name == "Config"
            else "tokenization" if name.startswith("Tokenizer")
            else "modeling"
        ]
    ]  # fmt: skip
    names = (*df901.OLD_ADAMW, *df901.MOVED, *df901.SCHEDULES, *flat)
    return [(name, df901.current_name(name)) for name in names]


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(old, new, id=old) for old, new in sorted(moved())]
)
def test_the_new_place_has_it_and_the_old_one_has_not(old: str, new: str) -> None:
    assert has(new)
    assert not has(old)


OF_FAMILIES = [
    "transformers.BERT_PRETRAINED_MODEL_ARCHIVE_LIST",
    "transformers.data.processors.utils.InputExample",
    "transformers.models.roberta.modeling_roberta.ROBERTA_INPUTS_DOCSTRING",
    "transformers.TFBertModel",
    "transformers.FlaxBertModel",
    "transformers.TransfoXLTokenizer",
    "transformers.TF_MODEL_MAPPING",
    "transformers.load_tf_weights_in_bert",
]


def test_each_family_has_an_example() -> None:
    ways = {df901.advice_for(name) for name in OF_FAMILIES}
    assert {way for *_, way in df901.FAMILIES} <= ways


def test_what_is_still_there_of_a_family_is_not_gone() -> None:
    name = "transformers.ZOEDEPTH_PRETRAINED_MODEL_ARCHIVE_LIST"
    assert df901.advice_for(name) == ""
    assert df901.advice_for(name.replace("ZOEDEPTH", "BERT"))


@pytest.mark.parametrize("name", [*df901.ADVICE, *df901.HELPERS, *OF_FAMILIES])
def test_what_is_called_gone_is_gone(name: str) -> None:
    assert not has(name)


@pytest.mark.parametrize("model", sorted(df901.MODELS))
def test_a_models_modules_have_moved(model: str) -> None:
    importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    assert not has(f"transformers.modeling_{model}.Model")


def has(name: str) -> bool:
    home, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(home), last)
    except ModuleNotFoundError:
        return False


def test_the_heads_that_are_left_to_prune() -> None:
    text = """\
import torch
from transformers.pytorch_utils import find_pruneable_heads_and_indices as find
heads, stay = find([0, 2], 3, 2, {0})
"""
    names: dict[str, Any] = {}
    exec(fixed("DF901", text), names)
    # Head 0 is gone already, so that head 2 is the second of those there are.
    assert names["heads"] == {2}
    assert names["stay"].tolist() == [0, 1, 4, 5]


SEARCH = """\
import torch
from transformers import RobertaConfig, RobertaModel

class Model(torch.nn.Module):
    def __init__(self, encoder, config):
        super().__init__()
        self.encoder, self.config = encoder, config
        self.tied = not self.config.torchscript
        self.register_buffer("bias", torch.tril(torch.ones(9, 9)).bool().view(1, 9, 9))

    def forward(self, ids, more):
        mask = self.bias[:, :7, :7] & ids[:, None, :].ne(1)
        first = self.encoder(ids, attention_mask=mask, use_cache=True)
        context = [[x[:, :, :7].repeat(1, 1, 1, 1) for x in y] for y in first.past_key_values]
        for _ in range(2):  # a step leaves the context as it was
            last = self.encoder(
                more, attention_mask=self.bias[:, 7:, :], past_key_values=context
            ).last_hidden_state
        return first[0], last
"""


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_search_with_masks_of_pairs_and_a_cache_predicts_what_it_did(attention: str) -> None:
    import torch
    from transformers import RobertaConfig, RobertaModel

    names: dict[str, Any] = {}
    exec(fixed("DF902", SEARCH), names)
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=20, is_decoder=True, use_cache=True,
        initializer_range=0.3, attn_implementation=attention,
    )  # fmt: skip
    encoder = RobertaModel(config).eval()
    assert encoder.config._attn_implementation == attention
    ids = torch.randint(5, 30, (3, 9))
    with torch.no_grad():
        first, last = names["Model"](encoder, config)(ids[:, :7], ids[:, 7:])
        # What transformers 4 made of a mask of three dimensions.
        old = (1.0 - torch.tril(torch.ones(3, 1, 9, 9))) * -10000.0
        whole = encoder(ids, attention_mask=old).last_hidden_state
    torch.testing.assert_close(torch.cat([first, last], 1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("second", ["* mask.unsqueeze(2)", "& mask.unsqueeze(-1)"])
def test_the_rows_and_columns_of_a_mask_of_tokens_make_one_of_pairs(second: str) -> None:
    line = f"x = encoder(ids, attention_mask=mask.unsqueeze(1) {second})\n"
    text = f"import torch\nimport transformers\nmask = ids.ne(1)\n{line}"
    new = fixed("DF902", text)
    assert f"attention_mask=pairwise_mask(mask.unsqueeze(1) {second}))" in new
    assert found("DF902", new) == []


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("getattr(self.config, 'torchscript', False)", "self.config.torchscript"),
        ("=pairwise_mask(mask)", "=mask"),
        ("DynamicCache(context)", "context"),
        ("y[:2]", "y"),
    ],
)
def test_each_of_its_edits_is_needed(new: str, old: str) -> None:
    import torch
    from transformers import RobertaConfig, RobertaModel

    text = fixed("DF902", SEARCH)
    assert text.count(new) == 1
    names: dict[str, Any] = {}
    exec(text.replace(new, old), names)
    config = RobertaConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=20, is_decoder=True, use_cache=True,
    )  # fmt: skip
    ids = torch.randint(5, 30, (3, 9))
    with pytest.raises((AttributeError, RuntimeError, IndexError, TypeError)):
        names["Model"](RobertaModel(config).eval(), config)(ids[:, :7], ids[:, 7:])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from ddpfix.fixtures.tiny import build_model
    from transformers import RobertaTokenizer

    folder = build_model(tmp_path_factory.mktemp("model"), "roberta")
    return RobertaTokenizer.from_pretrained(folder, additional_special_tokens=["<a>", "<b>"])


@pytest.mark.parametrize("name", [*df905.CALL_METHODS, *df905.RENAMED, *df905.ADVICE, "encoder"])
def test_a_tokenizer_has_it_no_more(tokenizer: Any, name: str) -> None:
    assert not hasattr(tokenizer, name)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        pytest.param(
            "tokenizer.encode_plus('int a', max_length=9, pad_to_max_length=True)['input_ids']",
            [0, 263, 348, 2, 1, 1, 1, 1, 1],
            id="padded",
        ),
        pytest.param(
            "len(tokenizer.encode_plus('int a ' * 9, max_length=9, pad_to_max_length=True)[0].ids)",
            9,
            id="cut",
        ),
        pytest.param(
            "tokenizer.batch_encode_plus([('int a', 'int')])['input_ids']",
            [[0, 263, 348, 2, 2, 263, 2]],
            id="a batch of pairs",
        ),
        pytest.param(
            "tokenizer.batch_encode_plus(zip(['int a', 'int'], ['int'] * 2),"
            " pad_to_max_length=True)['input_ids']",
            [[0, 263, 348, 2, 2, 263, 2], [0, 263, 2, 2, 263, 2, 1]],
            id="pairs one by one, padded to the longest",
        ),
        pytest.param("tokenizer.max_len", 66, id="the longest text"),
        pytest.param("tokenizer.additional_special_tokens_ids", [448, 449], id="added tokens"),
        pytest.param("tokenizer.encoder['int']", 263, id="a token's number"),
        pytest.param("tokenizer._convert_token_to_id('<a>')", 448, id="an added token's number"),
    ],
)
def test_a_tokenizer_answers_as_it_did(tokenizer: Any, line: str, value: object) -> None:
    new = fixed("DF905", f"import transformers\nvalue = {line}\n")
    names: dict[str, Any] = {"tokenizer": tokenizer}
    exec(new, names)
    assert names["value"] == value


GRAMMARS = """\
from tree_sitter import Language, Parser
parsers = {}
for lang in ('java',):
    LANGUAGE = Language('parser/my-languages.so', lang)
    parser = Parser()
    parser.set_language(LANGUAGE)
    parsers[lang] = parser
def kind(code):
    return parsers['java'].parse(code).root_node.type
"""


def test_a_parser_has_its_grammar_from_a_package_or_as_ever_from_a_path() -> None:
    new = fixed("DF905", GRAMMARS)
    assert found("DF905", new) == []
    names: dict[str, Any] = {}
    exec(new, names)
    assert names["kind"](b"class A {}") == "program"

    class Old:  # as tree_sitter 0.21 has them
        build_library = staticmethod(print)

        def __init__(self, path: str, name: str) -> None:
            self.said = path, name

        def set_language(self, language: Old) -> None:
            self.said = language.said

    parser = Old("", "")
    names["tree_sitter"] = SimpleNamespace(Language=Old)
    names["use_grammar"](parser, names["grammar_of"]("a.so", "java"))
    assert parser.said == ("a.so", "java")


def test_eager_attention_adds_a_mask_of_0_and_1() -> None:
    import torch
    from transformers import RobertaConfig, RobertaModel

    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=20, initializer_range=0.3,
        attn_implementation="eager",
    )  # fmt: skip
    model = RobertaModel(config).eval()
    first, second = torch.randint(5, 30, (2, 1, 6))
    second[:, :4] = first[:, :4]  # alike but for what the mask is to hide
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    for four, hidden in ((mask[:, None, None, :].float(), False), (mask, True)):
        one, other = (model(ids, attention_mask=four)[0][:, :4] for ids in (first, second))
        assert torch.allclose(one, other, atol=1e-6) is hidden
