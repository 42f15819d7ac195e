"""A tiny BERT with a vocabulary of words, characters and special tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ddpfix.fixtures.sentences import sentences

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def words_of(texts: Iterable[str]) -> list[str]:
    """The words of all texts, each once."""
    return sorted({word for text in texts for word in text.lower().split()})


ENGLISH = [english for english, _ in sentences()]


def build_bert(
    folder: Path,
    texts: Iterable[str] = ENGLISH,
    *,
    hidden: int = 32,
    positions: int = 64,
    pickled: bool = False,
    spread: float = 0.05,
    **config: object,
) -> Path:
    """Write config, vocabulary and weights, as pytorch_model.bin where ``pickled``."""
    import torch
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True, exist_ok=True)
    found = words_of(texts)
    letters = sorted({letter for word in found for letter in word} - set(found))
    pieces = [f"##{letter}" for letter in sorted({letter for word in found for letter in word})]
    vocabulary = [*SPECIAL, *found, *letters, *pieces]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", "utf-8")
    told = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": positions,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(
            BertConfig(
                vocab_size=len(vocabulary),
                hidden_size=hidden,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=2 * hidden,
                max_position_embeddings=positions,
                initializer_range=spread,
                **config,
            )
        )
    model.config.save_pretrained(str(folder))
    if pickled:
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        model.save_pretrained(str(folder))
    return folder
