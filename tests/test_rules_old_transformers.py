"""DF901, DF908, DF909, DF911: what scripts for transformers 2 to 4 ask of it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import changes, fixed, found
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.editing import helper_code
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.rules import all_rules

NOOP = [
    ("DF908", "a table of the class's own", """
        from transformers import BertConfig
        class Mine:
            def names(self):
                return self.pretrained_config_archive_map
        Mine.pretrained_config_archive_map = {}
        """),
    ("DF908", "no transformers", "names = Config.pretrained_config_archive_map.keys()"),
    ("DF909", "finished already", """
        from transformers import BertPreTrainedModel
        class Tagger(BertPreTrainedModel):
            def __init__(self, config):
                self.init_weights()
                self.post_init()
        """),
    ("DF909", "weights in a way of its own", """
        from transformers import BertPreTrainedModel
        class Tagger(BertPreTrainedModel):
            def __init__(self, config):
                self.init_weights()
            def init_weights(self):
                pass
        """),
    ("DF909", "a module of torch", """
        import transformers
        from torch import nn
        class Tagger(nn.Module):
            def __init__(self, config):
                self.init_weights()
        """),
    ("DF909", "a layer of the library, which is no model", """
        from transformers.models.bert.modeling_bert import BertLayer
        class Mine(BertLayer):
            def __init__(self, config):
                self.init_weights()
        """),
    ("DF911", "layers that the library draws", """
        from torch import nn
        from transformers import BertModel, BertPreTrainedModel
        class Head(nn.Module):
            def __init__(self, size):
                self.dense = nn.Linear(size, size)
        class MyLayerNorm(nn.Module):
            def __init__(self, size):
                self.weight = nn.Parameter(torch.ones(size))
        class Tagger(BertPreTrainedModel):
            def __init__(self, config):
                self.bert, self.head, self.norm = BertModel(config), Head(8), MyLayerNorm(8)
        Tagger.from_pretrained(path)
        """),
    ("DF911", "weights in a way of its own", """
        from torch import nn
        from transformers import BertPreTrainedModel
        class Tagger(BertPreTrainedModel):
            def __init__(self, config):
                self.bias = nn.Parameter(torch.zeros(3))
            def _init_weights(self, module):
                nn.init.zeros_(module.bias)
        Tagger.from_pretrained(path)
        """),
    ("DF911", "no model of the library", """
        from torch import nn
        from transformers import BertModel
        class Tagger(nn.Module):
            def __init__(self, config):
                self.bias = nn.Parameter(torch.zeros(3))
                self.bert = BertModel.from_pretrained(path)
        Tagger.from_pretrained(path)
        """),
    ("DF909", "a complete model, which finishes itself", """
        from transformers import BertForSequenceClassification
        class Mine(BertForSequenceClassification):
            def __init__(self, config):
                super().__init__(config)
        Mine.from_pretrained(path)
        """),
    ("DF909", "built here and never loaded", """
        from transformers import BertModel, BertPreTrainedModel
        class Mine(BertPreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.bert = BertModel.from_pretrained(path)
        Mine(config)
        """),
    ("DF909", "finished by what derives from it", """
        from transformers import BertPreTrainedModel
        class Base(BertPreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
        class Mine(Base):
            def __init__(self, config):
                super().__init__(config)
                self.post_init()
        Mine.from_pretrained(path)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_what_is_right_today_is_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF901", "the folder of a cache is the hub's", """
        from transformers.file_utils import PYTORCH_PRETRAINED_BERT_CACHE, WEIGHTS_NAME
        """, """
        @@ -1 +1,2 @@
        -from transformers.file_utils import PYTORCH_PRETRAINED_BERT_CACHE, WEIGHTS_NAME
        +from transformers.file_utils import WEIGHTS_NAME
        +from huggingface_hub.constants import HF_HUB_CACHE as PYTORCH_PRETRAINED_BERT_CACHE
        """),
    ("DF901", "tables of checkpoints become empty", """
        from transformers import (
            BertConfig, XLNET_PRETRAINED_MODEL_ARCHIVE_MAP,
            get_scheduler,
        )
        from transformers import BERT_PRETRAINED_MODEL_ARCHIVE_LIST
        ALL = list(XLNET_PRETRAINED_MODEL_ARCHIVE_MAP) + BERT_PRETRAINED_MODEL_ARCHIVE_LIST
        """, """
        @@ -1,6 +1,6 @@
         from transformers import (
        -    BertConfig, XLNET_PRETRAINED_MODEL_ARCHIVE_MAP,
        -    get_scheduler,
        +    BertConfig, get_scheduler,
         )
        -from transformers import BERT_PRETRAINED_MODEL_ARCHIVE_LIST
        +XLNET_PRETRAINED_MODEL_ARCHIVE_MAP = {}  # any name on the hub is taken
        +BERT_PRETRAINED_MODEL_ARCHIVE_LIST = []  # any name on the hub is taken
         ALL = list(XLNET_PRETRAINED_MODEL_ARCHIVE_MAP) + BERT_PRETRAINED_MODEL_ARCHIVE_LIST
        """),
    ("DF901", "an optimizer that is imported twice", """
        from transformers import AdamW, BertConfig
        from transformers import AdamW, get_scheduler
        optimizer = AdamW(p, lr=1)
        """, """
        @@ -1,3 +1,4 @@
        -from transformers import AdamW, BertConfig
        -from transformers import AdamW, get_scheduler
        -optimizer = AdamW(p, lr=1)
        +from transformers import BertConfig
        +from transformers import get_scheduler
        +from torch.optim import AdamW
        +optimizer = AdamW(p, lr=1, eps=1e-6, weight_decay=0.0)
        """),
    ("DF901", "options of the old optimizer that torch has no word for", """
        from transformers import AdamW
        optimizer = AdamW(p, correct_bias=True, lr=1e-4, no_deprecation_warning=True)
        """, """
        @@ -1,2 +1,2 @@
        -from transformers import AdamW
        -optimizer = AdamW(p, correct_bias=True, lr=1e-4, no_deprecation_warning=True)
        +from torch.optim import AdamW
        +optimizer = AdamW(p, lr=1e-4, eps=1e-6, weight_decay=0.0)
        """),
    ("DF901", "the old optimizer comes along where torch's cannot do the same", """
        import transformers
        optimizer = transformers.AdamW(p, lr=1e-4, correct_bias=args.correct)
        """, """
        @@ -1,2 +1,44 @@
         import transformers
        -optimizer = transformers.AdamW(p, lr=1e-4, correct_bias=args.correct)
        +import torch
        +
        +
        +class BertAdamW(torch.optim.Optimizer): ...
        +optimizer = BertAdamW(p, lr=1e-4, correct_bias=args.correct)
        """),
    ("DF901", "a class of an old module", """
        from transformers.modeling_albert import AlbertModel as Albert
        """, """
        @@ -1 +1,2 @@
        -from transformers.modeling_albert import AlbertModel as Albert
        +
        +from transformers.models.albert.modeling_albert import AlbertModel as Albert
        """),
    ("DF901", "a small function comes along", """
        from transformers.tokenization_bert import whitespace_tokenize as split
        words = split(text)
        """, """
        @@ -1,2 +1,6 @@
        -from transformers.tokenization_bert import whitespace_tokenize as split
        -words = split(text)
        +
        +
        +def whitespace_tokenize(text): ...
        +words = whitespace_tokenize(text)
        """),
    ("DF901", "nobody has TensorFlow's models", """
        from transformers.file_utils import is_tf_available, is_torch_available
        if is_tf_available():
            import tensorflow
        """, """
        @@ -1,2 +1,7 @@
        -from transformers.file_utils import is_tf_available, is_torch_available
        +from transformers.file_utils import is_torch_available
        +
        +
        +def is_tf_available(): ...
         if is_tf_available():
        """),
    ("DF908", "a table that the class lacks is empty", """
        from transformers import BertConfig
        ALL = sum((tuple(c.pretrained_config_archive_map.keys()) for c in (BertConfig,)), ())
        """, """
        @@ -1,2 +1,2 @@
         from transformers import BertConfig
        -ALL = sum((tuple(c.pretrained_config_archive_map.keys()) for c in (BertConfig,)), ())
        +ALL = sum((tuple(getattr(c, 'pretrained_config_archive_map', {}).keys()) for c in (BertConfig,)), ())
        """),  # noqa: E501
    ("DF909", "of a class between, too", """
        from transformers import BertPreTrainedModel
        class Base(BertPreTrainedModel):
            pass
        class Tagger(Base):
            def __init__(self, config):
                super().__init__(config)
                self.init_weights()
        """, """
        @@ -6,2 +6,2 @@
                 super().__init__(config)
        -        self.init_weights()
        +        self.post_init()
        """),
    ("DF909", "of a class in a table, which calls neither", """
        from transformers import BertModel, BertPreTrainedModel
        class Tagger(BertPreTrainedModel):
            def __init__(self, config):
                super(Tagger, self).__init__(config)
                self.bert = BertModel(config)
                if config.deep:
                    self.more = None
            def forward(self, x):
                return self.bert(x)
        CLASSES = {"bert": (Config, Tagger)}
        CLASSES[name][1].from_pretrained(path)
        """, """
        @@ -7,2 +7,3 @@
                     self.more = None
        +        self.post_init()
             def forward(self, x):
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_it_is_brought_to_todays_exactly_like_this(code: str, text: str, diff: str) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found(code, new) == []


LOOKS = [
    "url = BERT_PRETRAINED_MODEL_ARCHIVE_MAP[name]",
    "kinds = {each: 'bert' for each in BERT_PRETRAINED_MODEL_ARCHIVE_MAP}\nkind = kinds[name]",
    "kinds = list(BERT_PRETRAINED_MODEL_ARCHIVE_MAP)\nassert name in kinds",
    "kinds = tuple(BERT_PRETRAINED_MODEL_ARCHIVE_MAP)\nparser.add_argument('-m', choices=kinds)",
]


@pytest.mark.parametrize("use", LOOKS)
def test_a_table_that_is_looked_into_is_reported_only(use: str) -> None:
    line = "from transformers.modeling_bert import BERT_PRETRAINED_MODEL_ARCHIVE_MAP\n"
    (finding,) = found("DF901", line + use + "\n")
    assert finding.edits == ()


STAR = """\
from transformers.modeling_bert import *

class Tagger(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.encoder, self.head = BertModel(config), nn.Linear(4, {size})

    def forward(self, ids, labels):
        return CrossEntropyLoss()(self.head(self.encoder(ids)[1]), labels)
"""


def test_a_star_import_becomes_imports_of_what_is_read() -> None:
    imports = [
        line for line in fixed("DF901", STAR.format(size=2)).splitlines() if "import" in line
    ]
    assert imports == [
        "from transformers.models.bert.modeling_bert import BertModel",
        "from transformers.models.bert.modeling_bert import BertPreTrainedModel",
        "from torch.nn import CrossEntropyLoss",
        "from torch import nn",
    ]


def test_a_star_import_of_what_cannot_be_told_is_reported_only() -> None:
    (finding,) = found("DF901", STAR.format(size="SIZE"))
    assert "where SIZE may come from cannot be told" in finding.because
    assert not finding.edits


def test_schedules_are_made_by_functions() -> None:
    text = textwrap.dedent("""
        from transformers import ConstantLRSchedule, WarmupLinearSchedule as Linear
        flat = ConstantLRSchedule(optimizer)
        steep = Linear(optimizer, warmup_steps=1, t_total=9)
        """)
    expected = textwrap.dedent("""
        from transformers import get_constant_schedule
        from transformers import get_linear_schedule_with_warmup
        flat = get_constant_schedule(optimizer)
        steep = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=9)
        """)  # fmt: skip
    assert fixed("DF901", text).strip() == expected.strip()
    assert found("DF901", expected) == []


def test_classes_for_examples_come_along_under_their_own_names() -> None:
    text = textwrap.dedent("""
        from transformers import DataProcessor, InputExample, InputFeatures

        class Mine(DataProcessor):
            def examples(self):
                return [InputExample(1, "a", label="x")], InputFeatures([1], label=2)
        """)
    names: dict[str, type] = {}
    exec(fixed("DF901", text), names)
    (example,), features = names["Mine"]().examples()
    assert (example.guid, example.text_a, example.text_b, example.label) == (1, "a", None, "x")
    assert vars(features) == {
        "input_ids": [1],
        "attention_mask": None,
        "token_type_ids": None,
        "label": 2,
    }
    assert found("DF901", fixed("DF901", text)) == []


def test_a_processor_reads_lines_as_transformers_4_did(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_bytes('\ufeffa\t"b\n1\t2\n'.encode())
    assert helper_code.DataProcessor._read_tsv(path) == [["a", '"b'], ["1", "2"]]
    assert helper_code.DataProcessor._read_tsv(path, quotechar="|") == [["a", '"b'], ["1", "2"]]


SCRIPT = """
import transformers
from transformers import AdamW
from transformers.data.metrics.squad_metrics import squad_evaluate
class Mine(transformers.BertPreTrainedModel):
    def __init__(self, config):
        self.init_weights()
names = transformers.BertConfig.pretrained_config_archive_map
if __name__ == "__main__":
    for batch in loader:
        model(batch).backward()
"""


@pytest.mark.parametrize("own", [True, False])
def test_a_copy_of_the_library_beside_the_script_is_the_library(tmp_path: Path, own: bool) -> None:
    (tmp_path / "run.py").write_text(SCRIPT)
    if own:
        for folder in ("transformers", "transformers/data", "transformers/data/metrics"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "__init__.py").write_text("AdamW = BertPreTrainedModel = None\n")
        (tmp_path / "transformers/data/metrics/squad_metrics.py").write_text(
            "def squad_evaluate(): pass\n"
        )
    program = read_program(str(tmp_path / "run.py"), None)
    codes = {f.code for f in check(program, all_rules())} & {"DF901", "DF908", "DF909"}
    assert codes == (set() if own else {"DF901", "DF908", "DF909"})


@pytest.mark.parametrize("own", [True, False])
def test_tokenizers_of_a_copy_keep_their_calls(tmp_path: Path, own: bool) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lines.py").write_text(
        "def read(loader, tokenizer, text):\n"
        "    DataLoader(text)\n"
        "    return tokenizer.encode_plus(text)\n"
    )
    script = "from transformers import BertTokenizer\nfrom data.lines import read\n"
    (tmp_path / "run.py").write_text(f"{script}for batch in loader:\n    model(batch).backward()\n")
    if own:
        (tmp_path / "transformers").mkdir()
        (tmp_path / "transformers" / "__init__.py").write_text("BertTokenizer = None\n")
    program = read_program(str(tmp_path / "run.py"), None)
    codes = {f.code for f in check(program, all_rules())} & {"DF905"}
    assert codes == (set() if own else {"DF905"})


@pytest.mark.parametrize("elsewhere", ["", "def read_lines(): pass\n"])
def test_what_a_function_does_counts_under_the_name_that_it_is_imported_by(
    tmp_path: Path, elsewhere: str
) -> None:
    (tmp_path / "lines.py").write_text(
        "def read_lines(tokenizer, text):\n    return tokenizer.encode_plus(text)\n"
        "def unused(tokenizer, text):\n    return tokenizer.encode_plus(text)\n"
    )
    (tmp_path / "other.py").write_text("x = 1\n" + elsewhere)
    (tmp_path / "run.py").write_text(
        "import transformers\nimport other\nfrom lines import read_lines as read\n"
        "def main():\n"
        "    for batch in loader:\n"
        "        model(read(tokenizer, batch)).backward()\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    program = read_program(str(tmp_path / "run.py"), None)
    found = [f for f in check(program, all_rules()) if f.code == "DF905"]
    assert [f.line for f in found] == [2]


def test_a_model_in_a_folder_of_its_own_is_read(tmp_path: Path) -> None:
    """It has no word on training, and dies in its constructor."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tagger.py").write_text(
        "from transformers import BertPreTrainedModel\n"
        "class Tagger(BertPreTrainedModel):\n"
        "    def __init__(self, config):\n"
        "        super().__init__(config)\n"
        "        self.init_weights()\n"
    )
    (tmp_path / "run.py").write_text(
        "from models.tagger import Tagger\n"
        "model = Tagger.from_pretrained(path)\n"
        "for batch in loader:\n    model(batch).backward()\n"
    )
    program = read_program(str(tmp_path / "run.py"), None)
    found = [f for f in check(program, all_rules()) if f.code == "DF909"]
    assert [f.module.source.name for f in found] == [str(tmp_path / "models" / "tagger.py")]


DRAWN = """
import torch
from torch import nn
from transformers import BertModel, BertPreTrainedModel
class Chain(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.moves = nn.Parameter(torch.empty(count, count))
        self.register_buffer("places", torch.arange(count), persistent=False)
        nn.init.constant_(self.moves, 3.0)
class Tagger(BertPreTrainedModel):
    def __init__(self, config, labels, scale=1.0):
        super().__init__(config)
        self.bert = BertModel(config)
        self.head = nn.Linear(8, labels)
        self.chain = Chain(labels)
        self.scale = nn.Parameter(torch.full((2,), scale))
        self.weights = torch.tensor([1.0, 2.0])
        self.post_init()
def load(path, **options):
    return Tagger.from_pretrained(path, **options)
"""


def test_what_a_constructor_draws_survives_the_loading(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    base = transformers.BertModel(config)
    base.save_pretrained(tmp_path / "base")
    (finding,) = found("DF911", DRAWN)
    assert finding.because.startswith("chain, scale, weights of Tagger are")
    names: dict[str, Any] = {"__name__": "script"}
    exec(fixed("DF911", DRAWN), names)
    model = names["load"](tmp_path / "base", labels=4, scale=5.0)
    assert model.chain.moves.tolist() == [[3.0] * 4] * 4
    assert model.chain.places.tolist() == [0, 1, 2, 3]
    assert model.scale.tolist() == [5.0, 5.0]
    assert model.weights.tolist() == [1.0, 2.0]
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(model.bert.state_dict()[name], base.state_dict()[name])
    with torch.no_grad():
        model.chain.moves.fill_(7.0)
    model.save_pretrained(tmp_path / "tuned")
    again, told = names["load"](tmp_path / "tuned", labels=4, output_loading_info=True)
    assert again.chain.moves.tolist() == [[7.0] * 4] * 4
    assert again.scale.tolist() == [5.0, 5.0]
    assert again.chain.places.tolist() == [0, 1, 2, 3]
    assert not told["missing_keys"]


@pytest.mark.parametrize("package", ["pytorch_transformers", "pytorch_pretrained_bert"])
def test_an_older_library_is_named_and_left_alone(package: str) -> None:
    (finding,) = found("DF901", f"from {package} import AdamW\nAdamW(p)\n")
    assert finding.edits == ()
    assert finding.severity is not None
    assert (finding.severity.value, package in finding.because) == ("N", True)


@pytest.mark.parametrize("correct", [True, False])
def test_the_old_optimizer_steps_as_it_did_in_transformers_4(correct: bool) -> None:
    """Its formula: Adam's with or without the correction, and the decay behind the step."""
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    options = {"lr": 0.1, "weight_decay": 0.01, "correct_bias": correct}
    optimizer = helper_code.BertAdamW([weight], **options, no_deprecation_warning=True)
    value, mean, square = 1.0, 0.0, 0.0
    for step, gradient in enumerate((0.5, -2.0, 3.0), 1):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        rate = 0.1 * ((1 - 0.999**step) ** 0.5 / (1 - 0.9**step) if correct else 1.0)
        value -= rate * mean / (square**0.5 + 1e-6)
        value -= 0.1 * 0.01 * value
        assert weight.item() == pytest.approx(value, rel=1e-12)
    assert set(optimizer.state[weight]) == {"step", "exp_avg", "exp_avg_sq"}
