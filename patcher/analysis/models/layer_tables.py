"""Which modules of libraries have parameters, and whether a call of one reaches all of them.

tests/test_gradient_flow.py builds each class of torch and transformers and looks for parameters
without a gradient; torchvision's models are listed by their source.
"""

from __future__ import annotations

NO_PARAMETERS = frozenset(
    [
        *("Identity", "Flatten", "Unflatten", "Upsample", "UpsamplingBilinear2d", "PixelShuffle"),
        *("UpsamplingNearest2d", "ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d", "Fold"),
        *("Unfold", "CosineSimilarity", "PairwiseDistance", "LocalResponseNorm"),
        *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"),
        *("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Tanh"),
        *("Sigmoid", "LogSigmoid", "Softmax", "LogSoftmax", "Softmax2d", "Softplus", "Softsign"),
        *("Hardtanh", "Hardswish", "Hardsigmoid"),
        *(f"{kind}{size}d" for kind in ("MaxPool", "AvgPool") for size in (1, 2, 3)),
        *(f"Adaptive{kind}{size}d" for kind in ("MaxPool", "AvgPool") for size in (1, 2, 3)),
    ]
)
"""Layers of torch.nn without parameters, beside those whose name ends in ``Loss``."""

LAYERS = frozenset(
    [
        *("Linear", "Bilinear", "Embedding", "EmbeddingBag", "PReLU", "LayerNorm", "GroupNorm"),
        *(f"Conv{size}d" for size in (1, 2, 3)),
        *(f"ConvTranspose{size}d" for size in (1, 2, 3)),
        *(f"BatchNorm{size}d" for size in (1, 2, 3)),
        *(f"InstanceNorm{size}d" for size in (1, 2, 3)),
        *("TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder"),
        *("TransformerDecoderLayer", "Transformer"),
    ]
)
"""Layers of torch.nn that return one tensor, made of all their parameters."""

FIRST_OF_SEVERAL = frozenset(["RNN", "LSTM", "GRU", "MultiheadAttention"])
"""Layers of torch.nn that return a tuple, whose first part is made of all their parameters."""

_ENCODERS = ("Bert", "Roberta", "XLMRoberta", "Albert", "DistilBert", "Electra", "Camembert")
_ENCODER_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM")
_SEQUENCE_TO_SEQUENCE = ("T5", "MT5", "Bart", "PLBart", "MBart", "Pegasus")

HEADS = frozenset(
    [
        *(f"{family}For{head}" for family in _ENCODERS for head in _ENCODER_HEADS),
        *(f"{family}ForConditionalGeneration" for family in _SEQUENCE_TO_SEQUENCE),
        *("GPT2LMHeadModel", "GPT2ForSequenceClassification", "OpenAIGPTLMHeadModel"),
    ]
)
"""Classes of transformers whose loss, or else first output, is made of all their parameters."""

FIRST_OUTPUT = frozenset(["GPT2Model", "OpenAIGPTModel", "DistilBertModel", "ElectraModel"])
"""Models of transformers without a head whose first output is made of all their parameters."""

SECOND_OUTPUT = frozenset(["BertModel", "RobertaModel", "XLMRobertaModel", "AlbertModel"])
"""Models of transformers of which only the pooled output is made of all their parameters."""

PICTURES = frozenset(
    [
        *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152)),
        *("resnext50_32x4d", "resnext101_32x8d", "wide_resnet50_2", "wide_resnet101_2"),
        *(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
        *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
        *("alexnet", "mobilenet_v2", "squeezenet1_0", "squeezenet1_1"),
    ]
)
"""Models of torchvision.models without an auxiliary classifier, whose output is made of all."""
