"""The modules of single models that transformers had before version 4, and where they are."""

from functools import cache

# Before version 4 a model had modules such as transformers.modeling_roberta.
KINDS = ("modeling", "configuration", "tokenization")
MODELS = {
    *("albert", "auto", "bart", "bert", "camembert", "ctrl", "distilbert", "dpr", "electra"),
    *("encoder_decoder", "flaubert", "funnel", "gpt2", "longformer", "marian", "mbart"),
    *("mobilebert", "openai", "pegasus", "reformer", "roberta", "t5", "xlm", "xlm_roberta"),
    "xlnet",
}
# Names that these modules still have, without the prefix of the model.
PREFIXES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "gpt2": "GPT2",
    "t5": "T5",
    "bart": "Bart",
    "albert": "Albert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "xlm": "XLM",
    "xlm_roberta": "XLMRoberta",
    "xlnet": "XLNet",
}
MODEL_CLASSES = {
    "bert": "Model PreTrainedModel Encoder Layer Attention SelfAttention SelfOutput Intermediate "
    "Output Embeddings Pooler ForMaskedLM ForPreTraining ForNextSentencePrediction "
    "ForSequenceClassification ForTokenClassification ForMultipleChoice ForQuestionAnswering "
    "LMHeadModel OnlyMLMHead OnlyNSPHead PreTrainingHeads LMPredictionHead "
    "PredictionHeadTransform Config Tokenizer TokenizerFast",
    "roberta": "Model PreTrainedModel Embeddings ClassificationHead LMHead ForMaskedLM "
    "ForCausalLM ForSequenceClassification ForTokenClassification ForMultipleChoice "
    "ForQuestionAnswering Config Tokenizer TokenizerFast",
    "gpt2": "Model PreTrainedModel LMHeadModel DoubleHeadsModel MLP Attention Block Config "
    "Tokenizer",
    "t5": "Model PreTrainedModel ForConditionalGeneration Stack Block LayerNorm Attention "
    "LayerFF LayerSelfAttention LayerCrossAttention Config Tokenizer",
    "bart": "Model ForConditionalGeneration ForSequenceClassification ForQuestionAnswering "
    "ClassificationHead Config",
    "albert": "Model PreTrainedModel Embeddings Attention Layer LayerGroup Transformer "
    "ForMaskedLM ForSequenceClassification ForTokenClassification ForQuestionAnswering "
    "ForMultipleChoice Config Tokenizer",
    "distilbert": "Model PreTrainedModel ForMaskedLM ForSequenceClassification "
    "ForTokenClassification ForQuestionAnswering ForMultipleChoice Config Tokenizer",
    "electra": "Model PreTrainedModel Embeddings ForMaskedLM ForPreTraining "
    "ForSequenceClassification ForTokenClassification ForQuestionAnswering Config",
    "xlm": "Model PreTrainedModel WithLMHeadModel ForSequenceClassification "
    "ForTokenClassification ForQuestionAnswering ForQuestionAnsweringSimple Config Tokenizer",
    "xlm_roberta": "Model PreTrainedModel ForMaskedLM ForCausalLM ForSequenceClassification "
    "ForTokenClassification ForQuestionAnswering ForMultipleChoice Config Tokenizer",
    "xlnet": "Model PreTrainedModel LMHeadModel ForSequenceClassification "
    "ForTokenClassification ForQuestionAnswering ForQuestionAnsweringSimple Config Tokenizer",
}


@cache
def moved_class(name: str) -> str:
    """Today's dotted name of a class of such a module; "" for what it no longer has."""
    home, _, last = name.rpartition(".")
    kind, model = split_model_module(home)
    prefix = PREFIXES.get(model)
    if prefix is None or not last.startswith(prefix):
        return ""
    exists = last.removeprefix(prefix) in MODEL_CLASSES[model].split()
    return f"transformers.models.{model}.{kind}_{model}.{last}" if exists else ""


def split_model_module(home: str) -> tuple[str, str]:
    """``modeling`` and ``roberta`` of transformers.modeling_roberta; or two empty strings."""
    root, _, name = home.partition(".")
    kind, _, model = name.partition("_")
    return (kind, model) if root == "transformers" and kind in KINDS else ("", "")
